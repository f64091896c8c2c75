"""Finishes an epoch that Spark's file sink has committed, and Spark itself has not.

An epoch ends in two steps: the sink writes <folder>/_spark_metadata/<epoch>, and then Spark writes
<checkpoint>/commits/<epoch>, which also names the valid state of each partition. After a crash between them,
the sink skips the epoch when it runs again. So no task writes state that Spark could name, and every start of
the query ends with "assertion failed: CheckpointInfo length: 0".

The cure is to run this one epoch into a sink that drops its rows: they are in the folder already. Spark then
commits the epoch, and the query continues with the next one.
"""

from pathlib import Path

from pyspark.sql import DataFrame

from thetastream.core.folder import Folder, split_path
from thetastream.spark.checkpoint_log import find_last_epoch
from thetastream.spark.file_sink_log import LOG, find_entries


def finish_epoch(results: DataFrame, checkpoint: str | Path, sink: str | Path) -> bool:
    """Finish an epoch whose rows are in the folder of Spark's file sink, and that a crash left uncommitted.

    Call it before each start of a query that writes with ``format("parquet")`` or another format of files. It
    lists three folders, and runs nothing if there is nothing to finish. ``th.write``, ``foreachBatch`` and
    the sink ``thetastream_parquet`` do not need it.

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
    >>> th.finish_epoch(pairs, "out/checkpoint", "out/pairs")  # doctest: +SKIP
    False
    >>> writer = pairs.writeStream.option("checkpointLocation", "out/checkpoint")  # doctest: +SKIP
    >>> query = writer.format("parquet").start("out/pairs")  # doctest: +SKIP
    """
    logs = Folder(*split_path(str(checkpoint)))
    begun, committed = (find_last_epoch(logs.list_files(log)) for log in ("offsets", "commits"))
    written = max(find_entries(Folder(*split_path(str(sink))).list_files(LOG)), default=-1)
    if not committed < begun <= written:
        return False
    # A run of one epoch repeats the uncommitted epoch, and reads nothing that is new.
    writer = results.writeStream.format("noop").trigger(once=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    return True
