"""The streaming query, the epoch and the number of partitions to which a Spark task belongs.

Spark hands them to its tasks as local properties. On Spark Connect there is an exception: inside
``foreachBatch``, the server runs each action of the user's function in a thread that has none of the
properties of the query. There, the time at which the epoch began is used as its number. Spark writes this
time to its offset log before the epoch runs, so an epoch that runs again gets the same time. It is the same
in all tasks of the epoch, and it is larger than in all epochs before unless the clock is set back.
"""

from pyspark import TaskContext

from thetastream.core.errors import StateError
from thetastream.runtime.state.manifest import LastEpoch

_EPOCH, _QUERY = "streaming.sql.batchId", "sql.streaming.queryId"
_UNKNOWN = "unknown"
_RESTORED_PARTITIONS = "spark.sql.streaming.internal.stateStore.partitions"
"""The setting in which Spark keeps the number of a checkpoint. Earlier versions restored ``PARTITIONS``
itself. Units compare models again, so that another version cannot mix them."""


def _read_property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)


def read_query() -> str:
    """Read the identifier of the streaming query, which its checkpoint keeps."""
    return _read_property(_QUERY) or _UNKNOWN


def read_told_epoch() -> int | None:
    """Read the number of the epoch; None if Spark does not tell it."""
    text = _read_property(_EPOCH)
    return None if text is None else int(text)


def read_task_epoch() -> int:
    """Read the number of the epoch to which a task of a streaming query belongs."""
    epoch = read_told_epoch()
    if epoch is None:
        raise StateError("EPOCH_UNKNOWN", "Spark must tell a task of a query the number of its epoch")
    return epoch


def read_partitions() -> int | None:
    """Read the number of shuffle partitions with which the query runs; None if Spark does not tell it."""
    found = (_read_property(name) for name in (_RESTORED_PARTITIONS, PARTITIONS))
    return next((int(number) for number in found if number), None)


def read_task_partition() -> int:
    """Read the partition number of the current Spark task; 0 outside of Spark tasks."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def read_epoch(
    began_ms: int | None, before: LastEpoch, watermark_us: int | None, has_rows: bool, has_messages: bool
) -> int:
    """Read the number of the epoch.

    Parameters
    ----------
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
    told = read_told_epoch()
    if told is not None:
        return choose_number(told, before, watermark_us, has_rows)
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


PARTITIONS = "spark.sql.shuffle.partitions"
