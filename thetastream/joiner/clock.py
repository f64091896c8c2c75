"""What a unit is told of time in an epoch.

A stateful operator that runs before ours emits, in epoch e, tuples whose event times lie between the
watermarks of e - 1 and e. Spark therefore judges the inputs of a stateful operator by the watermark of the
epoch before, and so do units: that watermark is ``late_us``. State is dropped by the watermark of the epoch
itself, after its tuples have been joined, because that watermark judges the tuples of the next epoch.
"""

from typing import NamedTuple


class Clock(NamedTuple):
    """Time in one epoch; watermarks in microseconds, None while there is none."""

    epoch: int
    """Number of the epoch; numbers only rise."""
    late_us: int | None
    """Watermark of the epoch before: a tuple is late if its event time is at or before it."""
    watermark_us: int | None
    """Watermark of this epoch: no tuple of a later epoch with an event time at or before it is admitted."""

    def then(self, watermark_us: int | None) -> "Clock":
        """The clock of the next epoch, whose watermark this is.

        >>> Clock(0, None, 10).then(20)
        Clock(epoch=1, late_us=10, watermark_us=20)
        """
        return Clock(self.epoch + 1, self.watermark_us, watermark_us)


BEFORE = Clock(-1, None, None)
"""Before the first epoch."""
BATCH = BEFORE.then(None)
"""The one epoch of batch frames."""
