"""The number and the watermarks of an epoch, as a unit receives them.

In epoch e, a stateful operator that runs before ours emits tuples whose event times lie between the
watermarks of e - 1 and e. Therefore Spark compares the inputs of a stateful operator with the watermark of
the previous epoch to find late tuples. Units do the same: that watermark is ``late_us``. Units drop state by
the watermark of the epoch itself, after they have joined its tuples, because the next epoch compares its
tuples with that watermark.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Clock(NamedTuple):
    """The time of one epoch. Watermarks are in microseconds, or None before the first watermark."""

    epoch: int
    """Number of the epoch. Numbers only rise."""
    late_us: int | None
    """Watermark of the previous epoch. A tuple is late if its event time is at or before this watermark."""
    watermark_us: int | None
    """Watermark of this epoch. Later epochs admit only tuples whose event times are after this watermark."""
    is_last: bool = False
    """Whether no tuple follows this epoch, because the inputs are batch DataFrames."""

    def then(self, watermark_us: int | None) -> "Clock":
        """Return the clock of the next epoch, which has the given watermark.

        >>> Clock(0, None, 10).then(20)
        Clock(epoch=1, late_us=10, watermark_us=20, is_last=False)
        """
        return Clock(self.epoch + 1, self.watermark_us, watermark_us)


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
