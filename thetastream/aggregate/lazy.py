"""Decides when a view may wait for later epochs, so that groups are updated less often.

A view must not wait for ever. It waits in an epoch only if Spark is certain to run another epoch, with or
without data. Spark does so if the watermark moves after the epoch. The watermark moves if each stream brought
a tuple that is later than the watermark by more than the stream's delay.

    is followed:  for each stream  max(t) - delay > watermark + 1 ms
    waits:        is followed, and watermark - watermark of the oldest waiting view < every
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.condition import Condition
from thetastream.core.keys import HIGHEST, encode
from thetastream.core.sides import Role, Side
from thetastream.engine.inbox import Inbox


@dataclass(frozen=True)
class Lazy:
    """The longest time that views wait, and the watermark delay of each stream, in milliseconds."""

    every_ms: int
    delays_ms: tuple[int, int]


def is_followed(lazy: Lazy, condition: Condition, inbox: Inbox, watermark_ms: int) -> bool:
    """Whether an epoch with a later watermark is certain to follow the epoch that brought ``inbox``."""
    return all(
        any(
            # Spark's watermark is in milliseconds, and a timer is set one millisecond after the watermark.
            micros // 1000 - lazy.delays_ms[side] > watermark_ms + 1
            for micros in _find_latest(condition, inbox, side)
        )
        for side in Side
    )


def _find_latest(condition: Condition, inbox: Inbox, side: Side) -> Iterator[int]:
    """Yield the latest event time of the stream's batch in each role, in microseconds."""
    time = condition.sides[side].time
    for role in Role:
        batch: pa.RecordBatch | None = inbox.batch(side, role)
        if batch is not None and time is not None:
            times = encode(batch.column(time.column), time.domain)
            known = times[times < HIGHEST]  # NULL is the highest key
            if len(known):
                yield int(known.max())
