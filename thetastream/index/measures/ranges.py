"""Values outside of an interval: ``abs(left - right) > c`` and ``left NOT BETWEEN low AND high``.

Stored values lie in order, so those inside of an interval lie side by side, and the others before and behind
them. Of stored intervals, those that do not contain a value end before it or begin behind it. So the results
are ranges of rows, and none of them is computed. In the other direction, ``abs(left - right) <= c`` is a
band, which an index of keys answers. With a threshold of one side instead of c, it is a measure.

*Rounding.* A difference of numbers in floating point is rounded, so pairs near the limit are computed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.condition import Domain
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, encode
from thetastream.core.measure import (
    Bools,
    DerivedArrays,
    LimitSearch,
    MeasureLimit,
    PairMeasure,
    Proposal,
    Values,
    list_ranges,
    pair_all,
)
from thetastream.core.spark_types import FLOATING, INTEGRAL

MOST = 2.0**53
"""With a limit beyond, all pairs are computed."""
ROUNDOFF = {"float": 2.0**-22, "double": 2.0**-51}
"""More than the relative error of a difference, and of an end of an interval."""


@dataclass(frozen=True)
class NumberColumn(DerivedArrays):
    """The numbers of a column, as int64 or as float64; 0 stands for NULL."""

    numbers: npt.NDArray[Any]
    is_null: Bools
    roundoff: float
    """The relative error of a difference; 0 if it is exact."""


class Difference(PairMeasure):
    """The absolute difference of two numbers."""

    name = "abs"
    forms = ("abs(left - right)",)
    arguments = "two numbers of one type, without decimals in fixed point"
    proof = "typeof(coalesce('1', 1))", "bigint"
    """Outside ANSI mode, differences of whole numbers wrap around."""
    ranks = False
    widens = True
    is_cheap = True

    def takes(self, left: str, right: str) -> bool:
        return left == right and left in INTEGRAL | FLOATING

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        x, y = self.derive(left.take(pa.array(left_rows))), self.derive(right.take(pa.array(right_rows)))
        is_null = x.is_null | y.is_null
        if not x.roundoff:
            # The difference of two numbers of 64 bits has 64 bits without a sign.
            far, near = np.maximum(x.numbers, y.numbers), np.minimum(x.numbers, y.numbers)
            return Values((far.view(np.uint64) - near.view(np.uint64)).astype(np.float64), is_null)
        precision = np.float32 if pa.types.is_float32(left.type) else np.float64
        with np.errstate(invalid="ignore", over="ignore"):
            found = np.abs(x.numbers.astype(precision) - y.numbers.astype(precision))
        return Values(found.astype(np.float64), is_null)

    def derive(self, column: pa.Array) -> NumberColumn:
        is_null = column.is_null().to_numpy(zero_copy_only=False)
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        if not pa.types.is_floating(column.type):
            return NumberColumn(numbers.astype(np.int64), is_null, 0.0)
        roundoff = ROUNDOFF["float" if pa.types.is_float32(column.type) else "double"]
        return NumberColumn(numbers.astype(np.float64), is_null, roundoff)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        limit, roundoff = search.limit, search.probes.roundoff
        known, others = search.find_known()
        if abs(limit.value) > MOST:
            for pairs in pair_all(known, others, capacity):
                yield Proposal(*pairs)
            return
        # 1. Propose numbers that are not finite with all others.
        mine = search.probes.numbers[search.probe_rows[known]]
        theirs = search.stored.numbers[search.stored_rows[others]]
        is_usual, are_usual = np.isfinite(mine), np.isfinite(theirs)
        for some, all_others in ((known[~is_usual], others), (known[is_usual], others[~are_usual])):
            for pairs in pair_all(some, all_others, capacity):
                yield Proposal(*pairs)
        # 2. Find where the others begin and end to be near, and to be near in spite of a rounding.
        known, others, mine, theirs = known[is_usual], others[are_usual], mine[is_usual], theirs[are_usual]
        order = np.argsort(theirs, kind="stable")
        first, last = _cut(mine, theirs[order], limit, roundoff)
        near = _cut(mine, theirs[order], limit, -roundoff) if roundoff else (first, last)
        begin, end = (np.clip(edge, first, last) for edge in near)
        n = np.full(len(known), len(others))
        proved = ((np.zeros_like(n), first), (last, n)) if limit.is_far else ((begin, end),)
        pieces = *((*one, True) for one in proved), (first, begin, False), (end, last, False)
        for start, stop, is_proved in pieces:
            for found, at in list_ranges(start, stop, capacity):
                yield Proposal(known[found], others[order[at]], is_proved)


def _cut(
    mine: npt.NDArray[Any], ordered: npt.NDArray[Any], limit: MeasureLimit, roundoff: float
) -> tuple[Int64s, Int64s]:
    """Find for each number the first number that is near, and the first one behind those that are near.

    Numbers are near if their difference is less than the limit, or equal to it if the limit does not separate
    these. The interval is longer by the relative error ``roundoff``, and shorter if it is negative.
    """
    is_strict = limit.op in (">=", "<")
    if mine.dtype == np.int64:
        most = int(np.ceil(limit.value)) - 1 if is_strict else int(np.floor(limit.value))
        low = np.where(mine < LOWEST + most, LOWEST, mine - most)
        high = np.where(mine > HIGHEST - most, HIGHEST, mine + most)
        if most < 0:
            return (np.searchsorted(ordered, mine), np.searchsorted(ordered, mine))
    else:
        room = roundoff * (np.abs(mine) + abs(limit.value)) + np.sign(roundoff) * 1e-44
        low, high = mine - limit.value - room, mine + limit.value + room
    first = np.searchsorted(ordered, low, side="left")
    return first, np.maximum(first, np.searchsorted(ordered, high, side="right"))


@dataclass(frozen=True)
class KeyIntervals(DerivedArrays):
    """Closed intervals as keys of 64 bits. A value is an interval of one value."""

    low: Int64s
    high: Int64s


@dataclass(frozen=True, repr=False)
class Outside(PairMeasure):
    """Whether a value lies outside of an interval, which is an array of its ends. An end that is NULL bounds
    nothing."""

    name = "outside"
    forms = ()
    arguments = "a value, and an array of two ends of its type"
    is_test = True
    ranks = False
    is_cheap = True
    excludes: tuple[bool, bool] = (False, False)
    """Whether the low and the high end lie outside of the interval."""

    def takes(self, left: str, right: str) -> bool:
        return f"array<{left}>" == right or left == f"array<{right}>"

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        x, y = self.derive(left.take(pa.array(left_rows))), self.derive(right.take(pa.array(right_rows)))
        is_outside = (x.high < y.low) | (x.low > y.high)
        return Values(is_outside.astype(np.float64), np.zeros(len(left_rows), dtype=np.bool_))

    def derive(self, column: pa.Array) -> KeyIntervals:
        if not pa.types.is_list(column.type):
            low = high = column
        else:
            low, high = (pc.list_element(pc.fill_null(column, [None, None]), n) for n in (0, 1))
        ends = []
        for part, unbounded, step in (
            (low, LOWEST, int(self.excludes[0])),
            (high, HIGHEST, -int(self.excludes[1])),
        ):
            is_interval = part is not column
            keys = encode(part, _find_domain(part.type)) + (step if is_interval else 0)
            ends.append(np.where(part.is_null().to_numpy(zero_copy_only=False), unbounded, keys))
        return KeyIntervals(*ends)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        low, high = search.probes.low[search.probe_rows], search.probes.high[search.probe_rows]
        # 1. Find the intervals that begin behind a probe.
        starts = search.stored.low[search.stored_rows]
        order = np.argsort(starts, kind="stable")
        first = np.searchsorted(starts[order], high, side="right")
        for found, at in list_ranges(first, np.full_like(first, len(order)), capacity):
            yield Proposal(found, order[at], is_proved=True)
        # 2. Find those that end before it. An interval may do both if its ends are exchanged.
        ends = search.stored.high[search.stored_rows]
        order = np.argsort(ends, kind="stable")
        last = np.searchsorted(ends[order], low, side="left")
        for found, at in list_ranges(np.zeros_like(last), last, capacity):
            is_new = starts[order[at]] <= high[found]
            yield Proposal(found[is_new], order[at[is_new]], is_proved=True)


def _find_domain(kind: pa.DataType) -> Domain:
    if pa.types.is_floating(kind):
        return Domain.FLOAT
    return Domain.DECIMAL if pa.types.is_decimal(kind) else Domain.INT
