"""When a view may wait for the next epochs, so that groups are updated less often.

A view that waits must not wait for ever. It waits in an epoch only if Spark is sure to run another one, with
data or without: that is so if the watermark moves behind the epoch. And it moves if each stream brought a
tuple that is later than the watermark by more than the stream's delay.

    follows:  for each stream  max(t) - delay > watermark + 1 ms
    waits:    follows, and watermark - watermark of the first view that waits < every
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.condition import Condition
from thetastream.joiner.inbox import Inbox
from thetastream.keys import HIGHEST, encode
from thetastream.types import Role, Side


@dataclass(frozen=True)
class Lazy:
    """How long views wait, and how far the watermark of each stream is behind it, in milliseconds."""

    every_ms: int
    delays_ms: tuple[int, int]


def is_followed(lazy: Lazy, condition: Condition, inbox: Inbox, watermark_ms: int) -> bool:
    """Whether another epoch is sure to follow the one that brought ``inbox``, with a later watermark."""
    return all(
        any(
            # Spark's watermark counts milliseconds, and passes a timer that is set one of them ahead.
            micros // 1000 - lazy.delays_ms[side] > watermark_ms + 1
            for micros in _latest(condition, inbox, side)
        )
        for side in Side
    )


def _latest(condition: Condition, inbox: Inbox, side: Side) -> Iterator[int]:
    """The latest event time in each role, in microseconds."""
    time = condition.sides[side].time
    for role in Role:
        batch: pa.RecordBatch | None = inbox.batch(side, role)
        if batch is not None and time is not None:
            times = encode(batch.column(time.column), time.domain)
            known = times[times < HIGHEST]  # NULL is the highest key
            if len(known):
                yield int(known.max())
