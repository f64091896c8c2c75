"""Comparisons of a measure with a threshold of one side: ``levenshtein(a.t, b.t) <= a.k``.

An index compares many pairs with one constant. So rows are cut into blocks with similar thresholds, and the
pairs of a block are proposed by the least selective one:

    thresholds of rows    1 1 1 1 2 2 2 2 2 3 4 5      with <=
    blocks                |  1  |    2    |  5  |

Each proposed pair is then compared with the threshold of its own row. If all rows of a block have the same
one, as in the first two blocks, the index also proves pairs as it does for a constant.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.measure import (
    Bools,
    Int64s,
    MeasureLimit,
    PairMeasure,
    Values,
    compare,
    compute_candidates,
)
from thetastream.core.sides import Side

MOST_BLOCKS, LEAST_ROWS = 8, 256
"""About how many blocks rows are cut into, and how many rows a block has at least. More blocks exclude more
pairs, and cost more calls of the index."""


class LimitBlock(NamedTuple):
    """Some rows, and a comparison with a constant that is true wherever that with their thresholds is."""

    limit: MeasureLimit | None
    """None if it is true for all pairs with a value."""
    rows: Int64s
    is_exact: bool
    """Whether all of these rows have the constant as their threshold."""


@dataclass(frozen=True)
class RowLimit:
    """``measure(left, right) OP threshold``, where each row of one side has a threshold. Units call it as
    they call a predicate."""

    measure: PairMeasure
    op: str
    side: Side

    @property
    def is_far(self) -> bool:
        """Whether pairs that are far from each other satisfy it, as with ``distance > a.k``."""
        return MeasureLimit(self.measure, self.op, 0.0).is_far

    @property
    def mirrored(self) -> "RowLimit":
        """The same comparison with the operands exchanged."""
        return replace(self, measure=self.measure.mirrored, side=self.side.other)

    def __call__(self, left: SimpleNamespace, right: SimpleNamespace) -> Bools:
        """Return for each candidate whether the comparison is true.

        Values are dictionary-encoded columns, and so are the thresholds of ``side``.
        """
        encoded = (left, right)[self.side].threshold
        thresholds = read_thresholds(encoded.dictionary.take(encoded.indices))
        found = compute_candidates(self.measure, left, right)
        found = found._replace(is_null=found.is_null | thresholds.is_null)
        return compare(found, self.op, thresholds.values)

    def cut(self, thresholds: Values) -> Iterator[LimitBlock]:
        """Cut rows into blocks with similar thresholds. Rows whose threshold is NULL are left out.

        >>> from thetastream.index.measures import REGISTRY
        >>> limit = RowLimit(REGISTRY["levenshtein"], "<=", Side.LEFT)
        >>> for one in limit.cut(read_thresholds(pa.array([2, 1, None, 3, float("nan")]))):
        ...     print(one.limit and one.limit.value, one.rows, one.is_exact)
        None [4] False
        3.0 [1 0 3] False
        """
        is_least = self.op in (">", ">=")
        values, is_nan = thresholds.values, np.isnan(thresholds.values)
        rows = np.flatnonzero(~thresholds.is_null)
        if not is_least and is_nan[rows].any():
            # NaN is the greatest value, so every value is less, or equal.
            yield LimitBlock(None, rows[is_nan[rows]], False)
            rows = rows[~is_nan[rows]]
        # Only NaN, which is also greater than infinity, is as great as NaN.
        values = np.where(is_nan, np.inf, values)
        rows = rows[np.argsort(values[rows], kind="stable")]
        cuts = _cut_sorted(values[rows])
        for start, stop in pairwise(cuts):
            block = rows[start:stop]
            least, greatest = values[block[[0, -1]]]
            constant = MeasureLimit(self.measure, self.op, float(least if is_least else greatest))
            yield LimitBlock(constant, block, bool(least == greatest and not is_nan[block].any()))


def read_thresholds(column: pa.Array) -> Values:
    """Read a column of numbers as thresholds."""
    numbers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
    return Values(numbers, column.is_null().to_numpy(zero_copy_only=False))


def _cut_sorted(values: np.ndarray) -> Int64s:
    """Return where blocks of ascending values begin, and the end of the last one.

    >>> _cut_sorted(np.repeat([1.0, 2.0, 3.0, 4.0], [500, 2, 2, 500])).tolist()
    [0, 500, 504, 1004]
    """
    n = len(values)
    if not n:
        return np.zeros(1, dtype=np.int64)
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    sizes = np.diff(np.append(starts, n))
    most = max(LEAST_ROWS, -(-n // MOST_BLOCKS))
    # A value of many rows is alone. Others share a block until it is full.
    is_alone, block = sizes >= most // 4, starts // most
    is_cut = np.append(True, (block[1:] != block[:-1]) | is_alone[1:] | is_alone[:-1])
    return np.append(starts[is_cut], n)
