"""The number and the watermarks of an epoch, as a unit receives them or computes them before 1970.

    w = min { latest event time of the stream - delay of its watermark : streams },  but before 1970

In epoch e, a stateful operator that runs before ours emits tuples whose event times lie between the
watermarks of e - 1 and e. Therefore Spark compares the inputs of a stateful operator with the watermark of
the previous epoch to find late tuples. Units do the same: that watermark is ``late_us``. Units drop state by
the watermark of the epoch itself, after they have joined its tuples, because the next epoch compares its
tuples with that watermark.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from thetastream.core.condition import Domain
from thetastream.core.keys import HIGHEST, encode

Latest = tuple[int | None, ...]
"""The latest event time of each stream in microseconds; None if a stream has brought no tuple yet."""


class Clock(NamedTuple):
    """The time of one epoch. Watermarks are in microseconds, or None before the first watermark."""

    epoch: int
    """Number of the epoch. Numbers only rise."""
    late_us: int | None
    """Watermark of the previous epoch. A tuple is late if its event time is at or before this watermark."""
    watermark_us: int | None
    """Watermark of this epoch. Later epochs admit only tuples whose event times are after this watermark."""
    is_last: bool = False
    """Whether no tuple follows this epoch, because the inputs are batch DataFrames or have ended."""

    def then(self, watermark_us: int | None) -> "Clock":
        """Return the clock of the next epoch, which has the given watermark.

        >>> Clock(0, None, 10).then(20)
        Clock(epoch=1, late_us=10, watermark_us=20, is_last=False)
        """
        return Clock(self.epoch + 1, self.watermark_us, watermark_us)


END_US = 253_402_300_799_999_000
"""The watermark of a query whose input has ended: the last millisecond of the year 9999. Spark cannot compute
it from event times before this year, and each program can print it as a date."""
BEFORE = Clock(-1, None, None)
"""The clock before the first epoch."""
BATCH = BEFORE.then(None)._replace(is_last=True)
"""The clock of the only epoch of batch DataFrames."""


def find_earliest(watermarks: Iterable[int | None]) -> int | None:
    """Return the earliest of these watermarks; None if one of them does not exist yet.

    >>> find_earliest([30, 10]), find_earliest([30, None])
    (10, None)
    """
    earliest: int | None = None
    for watermark in watermarks:
        if watermark is None:
            return None
        earliest = watermark if earliest is None else min(earliest, watermark)
    return earliest


@dataclass(frozen=True)
class EarlyWatermark:
    """How units compute the watermark before 1970. Picklable.

    Spark's watermark begins at 1970-01-01T00:00:00Z and only rises. As long as the event times of a query are
    earlier, it stands still, and a tuple that waits for the watermark would wait for ever. Routers know the
    event times of an epoch. Each router reports the latest one to every unit, so all units compute the same
    watermark, also if an epoch runs again. It is complete at the end of the epoch, and the next epoch judges
    by it which tuples are late. Spark's own watermark takes its place as soon as it is there. That is one
    epoch after event times have passed 1970. Until then, the watermark is the last millisecond before 1970,
    so that it never falls.
    """

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
