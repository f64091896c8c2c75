"""The log of Spark's file sink, in which an epoch without input must not be missing.

    <folder>/_spark_metadata/<epoch>            the files that the epoch wrote
    <folder>/_spark_metadata/<epoch>.compact    the files of this epoch and of all epochs before

Spark writes an entry for each epoch that runs. An epoch that rescales the state runs no query and has no
entry. Spark stops the query with BATCH_METADATA_NOT_FOUND when it compacts the log for the next time.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from thetastream.core.folder import Folder, split_path

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
