"""Decides when a view may wait for later epochs, so that groups are updated less often.

A view must not wait for ever. It waits in an epoch only if Spark is certain to run another epoch, with or
without data. Spark does so if the watermark rises after the epoch. The watermark rises if each stream brought
a tuple that is later than the watermark by more than the stream's delay. If an input is the result of other
joins, its rows say this of the streams behind it (``thetastream.engine.two_stream.watermark_bound``).

    is followed:  bound of the watermark after the epoch > watermark + 1 ms
    waits:        is followed, and watermark - watermark of the oldest waiting view < every
"""

from dataclasses import dataclass

from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.inbox import Inbox
from thetastream.engine.two_stream.watermark_bound import BoundSource, find_watermark_bound


@dataclass(frozen=True)
class Lazy:
    """The longest time that views wait, and the watermark delay of each input, in milliseconds."""

    every_ms: int
    delays_ms: tuple[int, int]
    bounds: tuple[str | None, str | None] = (None, None)
    """For each input, the block column with the bound of the watermark. It is None if the input is a stream.
    """


def is_followed(lazy: Lazy, condition: Condition, inbox: Inbox, watermark_ms: int) -> bool:
    """Whether an epoch with a later watermark is certain to follow the epoch that brought ``inbox``."""
    sources = []
    for side in Side:
        time = condition.sides[side].time
        if time is None:
            return False
        sources.append(BoundSource(lazy.bounds[side] or time.column, lazy.delays_ms[side]))
    bound_ms = find_watermark_bound(inbox, (sources[0], sources[1]))
    # A timer is set one millisecond after the watermark.
    return bound_ms is not None and bound_ms > watermark_ms + 1
