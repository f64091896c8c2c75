"""A constant minus a measure, such as the distance ``1 - vector_cosine_similarity(left, right)``.

Spark rounds the difference to the type of the subtraction. A rounding keeps the order of numbers: the greater
a value, the smaller its difference, or both differences are equal. So the comparison is true from some value
on, and ``_find_edge`` finds this value among all numbers, in 64 steps:

    1 - v <= 0.2    is true for the same v as    v >= 0.8

The measure proposes pairs by this comparison, and proves them. Partners may be ranked by a difference, too.
Then all pairs are computed, because a rounding may let pairs tie whose values of the measure differ.
"""

import math
import struct
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from thetastream.core.measure import (
    Derived,
    Floats,
    Int64s,
    LimitSearch,
    MeasureLimit,
    PairMeasure,
    Proposal,
    Values,
    compare,
)

_INFINITY = struct.unpack("<q", struct.pack("<d", math.inf))[0]


class Subtraction(PairMeasure):
    """``minuend - measure(left, right)``.

    Parameters
    ----------
    measure : PairMeasure
        A measure whose values are numbers.
    minuend : float
    is_single : bool
        Whether Spark subtracts in single precision.
    """

    forms = ()

    def __init__(self, measure: PairMeasure, minuend: float, is_single: bool) -> None:
        self.measure, self.minuend, self.is_single = measure, minuend, is_single
        self.name = f"{minuend:.17g}{'F' if is_single else ''} - {measure.name}"
        self.arguments, self.is_cheap = measure.arguments, measure.is_cheap
        self.is_similarity, self.ranks = not measure.is_similarity, measure.ranks

    @property
    def mirrored(self) -> PairMeasure:
        return Subtraction(self.measure.mirrored, self.minuend, self.is_single)

    def takes(self, left: str, right: str) -> bool:
        return self.measure.takes(left, right)

    def compute(self, left: pa.Array, left_rows: Int64s, right: pa.Array, right_rows: Int64s) -> Values:
        found = self.measure.compute(left, left_rows, right, right_rows)
        return found._replace(values=self._subtract(found.values))

    def _subtract(self, values: Floats) -> Floats:
        if not self.is_single:
            return self.minuend - values
        with np.errstate(over="ignore"):
            return np.subtract(np.float32(self.minuend), values.astype(np.float32)).astype(np.float64)

    def derive(self, column: pa.Array) -> Derived:
        return self.measure.derive(column)

    def propose(self, search: LimitSearch, capacity: int) -> Iterator[Proposal]:
        op, value = search.limit.op, search.limit.value

        def is_true(number: float) -> bool:
            found = Values(self._subtract(np.array([number])), np.zeros(1, dtype=np.bool_))
            return bool(compare(found, op, value)[0])

        is_below = op in ("<", "<=")
        edge = _find_edge(is_true) if is_below else -_find_edge(lambda number: is_true(-number))
        limit = MeasureLimit(self.measure, ">=" if is_below else "<=", edge)
        if not is_true(edge):
            limit = MeasureLimit(self.measure, ">" if is_below else "<", edge)
        return self.measure.propose(search._replace(limit=limit), capacity)


def _find_edge(is_true: Callable[[float], bool]) -> float:
    """Find the least number from which on a condition is true; infinity if there is none.

    >>> _find_edge(lambda number: number > 0.5), _find_edge(lambda number: False)
    (0.5000000000000001, inf)
    """
    low, high = -_INFINITY - 1, _INFINITY
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_true(_read_number(middle)) else (middle, high)
    return _read_number(high)


def _read_number(place: int) -> float:
    """Return the number at a place in the order of all numbers, in which 0 has place 0.

    >>> _read_number(1), _read_number(-1), _read_number(0x3FF0000000000000)
    (5e-324, -5e-324, 1.0)
    """
    size: float = struct.unpack("<d", struct.pack("<q", abs(place)))[0]
    return math.copysign(size, place)
