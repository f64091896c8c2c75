"""Turns the bounds of a rewritten condition into the window and the dimensions that units use.

Bands and orderings become dimensions. Two orderings that bound one point become one dimension.
"""

from thetastream.core.condition import TIME, Bound, Dimension
from thetastream.core.sides import Side
from thetastream.core.spans import spell
from thetastream.lowering.conjunct import Ordering, Rewritten
from thetastream.lowering.query import Query

_EMPTY_US = 1, -1
"""The bounds of a window that no pair is inside. No tuple waits for earlier or for later partners."""


def find_window_ends(query: Query, rewritten: Rewritten) -> tuple[int | None, int | None]:
    """Return the bounds of left.ts - right.ts in microseconds, from ``within`` and the condition."""
    low, high = rewritten.window
    if query.within_us is not None:
        left, right = query.within_us
        low = -left if low is None else max(low, -left)
        high = right if high is None else min(high, right)
    return low, high


def build_window(query: Query, rewritten: Rewritten) -> Dimension | None:
    """Return the window as a dimension over event time.

    If its bounds contradict each other, no pair is inside it, and no tuple waits for partners.
    """
    low, high = find_window_ends(query, rewritten)
    if low is None and high is None:
        return None
    a, b = query.streams
    ends = [f"{spell(low)} <= "] * (low is not None)
    text = f"{''.join(ends)}{a.alias}.{a.event_time} - {b.alias}.{b.event_time}"
    text += f" <= {spell(high)}" if high is not None else ""
    if low is not None and high is not None and low > high:
        low, high = _EMPTY_US
    return Dimension(
        Side.LEFT,
        TIME,
        None if low is None else Bound(TIME, low),
        None if high is None else Bound(TIME, high),
        text,
    )


def is_empty(window: Dimension) -> bool:
    """Whether the lower bound of a window is above its upper bound, so that no pair is inside it."""
    low, high = window.low, window.high
    return low is not None and high is not None and low.delta > high.delta


def build_dimensions(rewritten: Rewritten) -> tuple[Dimension, ...]:
    """Turn bands and orderings into dimensions. Two orderings that share a point become one dimension."""
    found = [
        Dimension(
            Side.LEFT, band.left, Bound(band.right, -band.delta), Bound(band.right, band.delta), band.text
        )
        for band in rewritten.bands
    ]
    orderings = list(rewritten.orderings)
    # First pair the two ends of one BETWEEN, then any two comparisons that share a point.
    for is_same_conjunct in (True, False):
        n = 0
        while n < len(orderings):
            pair = _find_partner(orderings, n, is_same_conjunct)
            if pair is None:
                n += 1
                continue
            partner, point = pair
            found.append(_pair(orderings[n], orderings[partner], point))
            del orderings[partner], orderings[n]
    return (*found, *(_build_inequality(ordering) for ordering in orderings))


def _find_partner(orderings: list[Ordering], n: int, is_same_conjunct: bool) -> tuple[int, Side] | None:
    first = orderings[n]
    for m in range(n + 1, len(orderings)):
        other = orderings[m]
        if first.op[0] == other.op[0] or (is_same_conjunct and first.conjunct != other.conjunct):
            continue
        if first.left == other.left:
            return m, Side.LEFT
        if first.right == other.right:
            return m, Side.RIGHT
    return None


def _pair(first: Ordering, second: Ordering, point: Side) -> Dimension:
    # left < right bounds the left point from above and the right point from below.
    upper, lower_ = (first, second) if (first.op[0] == "<") is (point is Side.LEFT) else (second, first)
    text = first.text if first.text == second.text else f"{first.text} AND {second.text}"
    key = first.left if point is Side.LEFT else first.right
    return Dimension(point, key, _build_bound(lower_, point), _build_bound(upper, point), text)


def _build_inequality(ordering: Ordering) -> Dimension:
    bound = _build_bound(ordering, Side.LEFT)
    is_upper = ordering.op[0] == "<"
    return Dimension(
        Side.LEFT, ordering.left, None if is_upper else bound, bound if is_upper else None, ordering.text
    )


def _build_bound(ordering: Ordering, point: Side) -> Bound:
    key = ordering.right if point is Side.LEFT else ordering.left
    delta = ordering.delta if point is Side.LEFT else -ordering.delta
    return Bound(key, delta, is_strict=len(ordering.op) == 1)
