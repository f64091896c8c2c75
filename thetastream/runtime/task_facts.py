"""The streaming query, the epoch and the number of partitions to which a Spark task belongs.

Spark tells its tasks (``thetastream.spark.task_properties``), and pure code gets ``TaskFacts``. On Spark
Connect there is an exception: inside ``foreachBatch``, tasks do not know the number of the epoch. There, the
time at which the epoch began is used as its number. Spark writes this time to its offset log before the epoch
runs, so an epoch that runs again gets the same time. It is the same in all tasks of the epoch, and it is
larger than in all epochs before unless the clock is set back.
"""

from collections.abc import Callable
from typing import NamedTuple

from thetastream.core.errors import StateError
from thetastream.runtime.state.manifest import LastEpoch

UNKNOWN = "unknown"
"""The query of a task that does not know it."""


class TaskFacts(NamedTuple):
    """What a Spark task knows of the query for which it runs."""

    query: str = UNKNOWN
    """The identifier of the streaming query, which its checkpoint keeps."""
    epoch: int | None = None
    """The number of the epoch; None if Spark does not tell it."""
    partition: int = 0
    """The number of the partition that the task computes."""
    partitions: int | None = None
    """The number of shuffle partitions with which the query runs; None if Spark does not tell it."""
    run: str | None = None
    """What tells this run of the query from others; None if Spark does not tell it."""

    def find_epoch(self, why: str = "Spark must tell a task of a query the number of its epoch") -> int:
        """Return the number of the epoch.

        Raises
        ------
        StateError
            EPOCH_UNKNOWN with the reason ``why``, if Spark does not tell it.
        """
        if self.epoch is None:
            raise StateError("EPOCH_UNKNOWN", why)
        return self.epoch


ReadTask = Callable[[], TaskFacts]
"""Reads the facts of the task that calls. Workers are reused, so each task reads them anew. Picklable."""


def number_epoch(
    task: TaskFacts,
    began_ms: int | None,
    before: LastEpoch,
    watermark_us: int | None,
    has_rows: bool,
    has_messages: bool,
) -> int:
    """Find the number of the epoch of a unit.

    Parameters
    ----------
    task : TaskFacts
        The task in which the unit runs.
    began_ms : int or None
        The time at which the epoch began, in milliseconds since 1970. None or a negative number if Spark does
        not tell it.
    before : LastEpoch
        The last epoch in which the unit took part.
    watermark_us : int or None
        The watermark of this epoch.
    has_rows : bool
        Whether Spark calls the unit with rows. If not, the watermark has moved, or the rows of this epoch
        have called the unit already.
    has_messages : bool
        Whether units send messages. If so, all units must number an epoch alike.

    Raises
    ------
    StateError
        EPOCH_UNKNOWN.
    """
    if task.epoch is not None:
        return choose_number(task.epoch, before, watermark_us, has_rows)
    if began_ms is not None and began_ms >= 0:
        return choose_number(began_ms, before, watermark_us, has_rows)
    if has_messages:
        raise StateError(
            "EPOCH_UNKNOWN",
            "Spark does not tell the number of the epoch inside foreachBatch on Spark Connect, and units "
            "that send messages need it; give the streams a watermark, or write with another sink",
        )
    # Without a watermark there are no timers, so each call of a unit is another epoch.
    return before.epoch + 1


def choose_number(told: int, before: LastEpoch, watermark_us: int | None, has_rows: bool) -> int:
    """Return the number that Spark told, or the next number if that one is in the past.

    It is in the past if the clock is set back, or if an earlier run numbered its epochs by times.

    >>> choose_number(8, LastEpoch(7, None), None, True)
    8
    >>> choose_number(8, LastEpoch(1_700_000_000_000, 5), 6, True)
    1700000000001
    """
    if told >= before.epoch:
        return told
    is_same_epoch = not has_rows and watermark_us == before.watermark_us
    return before.epoch if is_same_epoch else before.epoch + 1
