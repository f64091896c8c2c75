"""Repairs the log of Spark's file sink, in which an epoch without input must not be missing.

    <folder>/_spark_metadata/<epoch>            the files that the epoch wrote
    <folder>/_spark_metadata/<epoch>.compact    the files of this epoch and of all epochs before

Spark writes an entry for each epoch that runs. An epoch that rescales the state runs no query and has no
entry. Spark stops the query with BATCH_METADATA_NOT_FOUND when it compacts the log for the next time. Another
epoch has an entry, but Spark has not committed it (``finish_epoch``).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from thetastream.core.arguments import read_path
from thetastream.core.folder import Folder, split_path
from thetastream.runtime.checkpoint_files import find_epochs
from thetastream.spark.arguments import refuse_other_frames

LOG = "_spark_metadata"
_VERSION = 1
_COMPACT = ".compact"


def complete_log(spark: SparkSession, folder: str, committed: int) -> list[int]:
    """Add an empty entry for each epoch up to ``committed`` that the log lacks; return these epochs.

    Parameters
    ----------
    spark : SparkSession
        A classic session. Spark writes the entries itself, because some of them are compact.
    folder : str
        The folder that the query writes.
    committed : int
        The last committed epoch of the query.
    """
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog(
        _VERSION, spark._jsparkSession, f"{folder.rstrip('/')}/{LOG}", jvm.scala.Option.empty()
    )
    kind = jvm.org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus
    nothing = spark.sparkContext._gateway.new_array(kind, 0)  # type: ignore[union-attr]
    missing = find_missing(list(Folder(*split_path(folder)).list_files(LOG)), committed)
    for epoch in missing:
        log.add(epoch, nothing)
    return missing


def find_entries(names: Iterable[str]) -> list[int]:
    """Find the epochs that have an entry in a log.

    >>> find_entries(["8", "9.compact", ".10.crc"])
    [8, 9]
    """
    return [int(name.removesuffix(_COMPACT)) for name in names if name.removesuffix(_COMPACT).isdecimal()]


def find_missing(names: list[str], committed: int) -> list[int]:
    """Find the epochs that a log lacks. Spark removes entries that a later compact entry contains.

    >>> find_missing(["8", "9.compact", "10", "12", ".12.crc"], 13)
    [11, 13]
    >>> find_missing([], 5)
    []
    """
    whole = find_entries(names)
    compact = [int(name.removesuffix(_COMPACT)) for name in names if name.endswith(_COMPACT)]
    if not whole:
        return []
    first = max(compact, default=min(whole))
    return sorted(set(range(first, committed + 1)) - set(whole))


def finish_epoch(results: DataFrame, checkpoint: str | Path, sink: str | Path) -> bool:
    """Finish an epoch whose rows are in the folder of Spark's file sink, and that a crash left uncommitted.

    Call it before each start of a query that writes with ``format("parquet")`` or another format of files. It
    lists three folders, and runs nothing if there is nothing to finish. ``th.write``, ``foreachBatch`` and
    the sink ``thetastream_parquet`` do not need it.

    An epoch ends in two steps: the sink writes ``<folder>/_spark_metadata/<epoch>``, and then Spark writes
    ``<checkpoint>/commits/<epoch>``, which also names the valid state of each partition. After a crash
    between them, the sink skips the epoch when it runs again. So no task writes state that Spark could name,
    and every start of the query ends with "assertion failed: CheckpointInfo length: 0". This function runs
    the one epoch into a sink that drops its rows, which are in the folder already. Spark then commits the
    epoch, and the query continues with the next one.

    Parameters
    ----------
    results : DataFrame
        The streaming DataFrame that the query writes.
    checkpoint : str or Path
        The checkpoint of the query, as a path or URI. No query may be running on it.
    sink : str or Path
        The folder that the query writes, as a path or URI.

    Returns
    -------
    bool
        Whether there was an epoch to finish.

    Raises
    ------
    StreamingQueryException
        If the epoch fails.

    Examples
    --------
    >>> import thetastream as th
    >>> th.checkpoints.finish_epoch(pairs, "out/checkpoint", "out/pairs")  # doctest: +SKIP
    False
    >>> writer = pairs.writeStream.option("checkpointLocation", "out/checkpoint")  # doctest: +SKIP
    >>> query = writer.format("parquet").start("out/pairs")  # doctest: +SKIP
    """
    refuse_other_frames("th.checkpoints.finish_epoch", results)
    place, written_to = read_path(checkpoint, "checkpoint"), read_path(sink, "sink")
    begun, committed = find_epochs(Folder(*split_path(place)))
    written = max(find_entries(Folder(*split_path(written_to)).list_files(LOG)), default=-1)
    if not committed < begun <= written:
        return False
    # A run of one epoch repeats the uncommitted epoch, and reads nothing that is new.
    writer = results.writeStream.format("noop").trigger(once=True)
    writer.option("checkpointLocation", place).start().awaitTermination()
    return True
