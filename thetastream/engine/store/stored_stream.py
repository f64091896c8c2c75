"""How the tuples of one stream are stored, and how long."""

from dataclasses import dataclass

from thetastream.core.condition import Dimension
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan


@dataclass(frozen=True)
class StoredStream:
    """How the tuples of one stream are stored. Picklable. Times are in microseconds."""

    stream: int
    plan: IndexPlan
    """How the tuples are indexed, and how they are checked if a probe has no plan of its own."""
    archive_period_us: int | None
    """Event time of one subindex. None keeps all tuples in one subindex."""
    lifetime_us: int | None
    """How long after its event time a tuple may still find a partner. None means forever."""


def compute_lifetime_us(window: Dimension | None, side: Side) -> int | None:
    """Compute how long after its event time a stored tuple of ``side`` may find a partner; None means
    forever.

    With low <= left.ts - right.ts <= high, a left tuple waits for right tuples up to t - low, and a right
    tuple waits for left tuples up to t + high. In a count window, times are numbers of tuples.
    """
    if window is None:
        return None
    bound = window.low if window.point is side else window.high
    if bound is None:
        return None
    delta = int(bound.delta)
    return -delta if window.point is side else delta
