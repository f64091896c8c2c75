"""The watermark before 1970, which units compute themselves.

    w = min { latest event time of the stream - delay of its watermark : streams },  but before 1970

Spark's watermark begins at 1970-01-01T00:00:00Z and only rises. As long as the event times of a query are
earlier, it stands still, and a tuple that waits for the watermark would wait for ever. Routers know the event
times of an epoch. Each router reports the latest one to every unit, so all units compute the same watermark,
also if an epoch runs again. It is complete at the end of the epoch, and the next epoch judges by it which
tuples are late. Spark's own watermark takes its place as soon as it is there. That is one epoch after event
times have passed 1970. Until then, the watermark is the last millisecond before 1970, so that it never falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.condition import Domain
from thetastream.core.keys import HIGHEST, encode

Latest = tuple[int | None, ...]
"""The latest event time of each stream in microseconds; None if a stream has brought no tuple yet."""


@dataclass(frozen=True)
class EarlyWatermark:
    """How units compute the watermark before 1970. Picklable."""

    columns: tuple[str, ...]
    """The event time of each stream, as a column of blocks."""
    delays_us: tuple[int, ...]
    """The delay of the watermark of each stream."""
    takes_highest: bool = False
    """Whether the highest of several watermarks counts. Spark's policy is ``max`` then."""

    def find_latest(self, stream: int, batch: pa.RecordBatch, before_us: int | None) -> int | None:
        """Return the latest event time of a stream: of these tuples, or the one before them if it is later.

        It is None if there is none.
        """
        times = encode(batch.column(self.columns[stream]), Domain.INT)
        times = times[times < HIGHEST]
        if not len(times):
            return before_us
        latest_us = int(times.max())
        return latest_us if before_us is None else max(latest_us, before_us)

    def compute(self, latest: Sequence[int | None]) -> int | None:
        """Compute the watermark, in whole milliseconds as Spark does; None if it is unknown.

        Spark does not tell a watermark of 0 from none, so the last millisecond before it is the highest
        watermark here.

        >>> early = EarlyWatermark(("c0", "c1"), (0, 5_000_000))
        >>> early.compute([-3_000_000, -4_000_000]), early.compute([-3_000_000, None]), early.compute([7, 8])
        (-9000000, None, -5000000)
        >>> early.compute([100_000_000, 100_000_000])
        -1000
        """
        known = [
            time // 1000 * 1000 - delay
            for time, delay in zip(latest, self.delays_us, strict=True)
            if time is not None
        ]
        if len(known) < (1 if self.takes_highest else len(self.delays_us)):
            return None
        return min(max(known) if self.takes_highest else min(known), -1000)


def merge_latest(before: Sequence[int | None], now: Sequence[int | None]) -> Latest:
    """Return the latest event time of each stream, in all epochs until now.

    >>> merge_latest((), [-5, None]), merge_latest((-7, None), [-9, -1])
    ((-5, None), (-7, -1))
    """
    if not before:
        return tuple(now)
    return tuple(
        max((time for time in pair if time is not None), default=None)
        for pair in zip(before, now, strict=True)
    )
