"""The expected answer, by a nested loop over the whole input.

This is plain Python over rows, without indexes, encoding or epochs. A row is a dictionary. Values are
compared as in Spark SQL: NULL never joins, NaN equals NaN, and NaN is the largest value.
"""

import math
import operator
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from thetastream.core.condition import Bound, Condition, Dimension
from thetastream.core.measure import MeasureLimit
from thetastream.core.sides import Side

Row = Mapping[str, Any]
COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def rank(value: Any) -> tuple[int, Any]:
    """Compute a sort key with which values sort as in Spark: NaN after every number, -0.0 equal to 0.0."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)


def holds(condition: Condition, left: Row, right: Row) -> bool:
    """Whether the indexable part of the condition is TRUE for a pair."""
    rows = (left, right)

    def value(side: Side, key: int) -> Any:
        spec = condition.sides[side].key(key)
        plain = rows[side][spec.column]
        return plain + spec.offset if spec.offset and plain is not None else plain

    for equality in condition.equalities:
        a, b = value(Side.LEFT, equality.left), value(Side.RIGHT, equality.right)
        if a is None or b is None or rank(a) != rank(b):
            return False
    for pair in condition.measured:
        limits = [row.get(name) for row, name in zip(rows, pair.thresholds, strict=True) if name is not None]
        limit = pair.limit.value if isinstance(pair.limit, MeasureLimit) else limits[0]
        found = measure(pair.limit.measure.name, left[pair.columns[0]], right[pair.columns[1]])
        if found is None or limit is None or not COMPARE[pair.limit.op](rank(found), rank(limit)):
            return False
    dimensions = [*condition.dimensions, *([condition.window] if condition.window else [])]
    return all(_inside(condition, dimension, value) for dimension in dimensions)


def measure(name: str, left: Sequence[float] | None, right: Sequence[float] | None) -> float | None:
    """Compute a measure of two vectors of small integers in single precision."""
    if left is None or right is None:
        return None
    product, *squares = (
        sum(map(math.prod, zip(x, y, strict=True))) for x, y in ((left, right), (left, left), (right, right))
    )
    length = math.sqrt(math.prod(squares))
    if name == "vector_l2_distance":
        value = math.dist(left, right)
    elif name == "vector_inner_product":
        value = product
    elif length == 0:
        return None
    else:
        value = product / length
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _inside(condition: Condition, dimension: Dimension, value: Callable[[Side, int], Any]) -> bool:
    point = value(dimension.point, dimension.key)
    if point is None:
        return False

    def end(bound: Bound) -> Any:
        base = value(dimension.point.other, bound.key)
        return None if base is None else (base + bound.delta if bound.delta else base)

    if dimension.low is not None:
        low = end(dimension.low)
        if low is None or rank(point) < rank(low) or (dimension.low.is_strict and rank(point) == rank(low)):
            return False
    if dimension.high is not None:
        high = end(dimension.high)
        if (
            high is None
            or rank(point) > rank(high)
            or (dimension.high.is_strict and rank(point) == rank(high))
        ):
            return False
    return True


def join(condition: Condition, left: Iterable[Row], right: Iterable[Row]) -> Counter[tuple[Any, Any]]:
    """Compute the bag of (left id, right id) over all pairs. The field ``id`` identifies a row."""
    others = list(right)
    return Counter((a["id"], b["id"]) for a in left for b in others if holds(condition, a, b))


def timely(rows: Iterable[Row], late_us: int | None, time: str) -> list[Row]:
    """Select the rows that are not late: their event time is after the watermark of the previous epoch."""
    return [row for row in rows if late_us is None or row[time] is None or row[time] > late_us]


def pair_with_late_watermark(epochs: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Replace the last item of each epoch, its watermark, by the watermark of the previous epoch.

    >>> list(pair_with_late_watermark([("r1", 10), ("r2", 20)]))
    [('r1', None), ('r2', 10)]
    """
    before: int | None = None
    for *rows, watermark in epochs:
        yield (*rows, before)
        before = watermark


class Meeting(NamedTuple):
    """A pair that a sequential replay found: the ids of its rows, and their places in the order of
    arrival."""

    left: Any
    right: Any
    arrival: int
    stored: int


def replay(
    matches: Callable[[Row, Row], bool],
    epochs: Iterable[Sequence[Sequence[Row]]],
    counts: tuple[int | None, int | None],
    time: str | None,
) -> Iterator[Meeting]:
    """Yield the pairs in sequence, as each arriving row meets the last ``counts`` rows of the other stream.

    Each epoch has left rows and right rows, and ``matches`` takes a left row and a right row. Inside an
    epoch, rows arrive in the order of their time stamps. Among equal time stamps, left rows arrive before
    right rows, and rows of one stream arrive as they are listed. NULL time stamps are last. A count of None
    keeps every row.
    """
    arrival = 0
    kept: tuple[deque[tuple[int, Row]], ...] = (deque(maxlen=counts[0]), deque(maxlen=counts[1]))
    for streams in epochs:
        rows = [(side, row) for side in Side for row in streams[side]]
        if time is not None:
            rows.sort(key=lambda entry: (entry[1][time] is None, entry[1][time] or 0, entry[0]))
        for side, row in rows:
            for stored, other in kept[side.other]:
                left, right = (row, other) if side is Side.LEFT else (other, row)
                if matches(left, right):
                    yield Meeting(left["id"], right["id"], arrival, stored)
            kept[side].append((arrival, row))
            arrival += 1
