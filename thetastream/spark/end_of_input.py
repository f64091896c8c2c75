"""The end of the input of a query: an epoch without rows, whose watermark is the last millisecond of 9999.

    offsets/n       committed; all rows that the sources had
    offsets/n + 1   the same offsets, and the watermark END_US

Spark writes the offsets of an epoch before it runs the epoch, and a query that starts again first runs the
epoch that is not committed. So an entry that is written beside a stopped query becomes the next epoch of the
query, exactly once, whatever happens meanwhile. Its watermark reaches every operator of the query: joins
decide all rows, and windows and joins behind them end too. Spark keeps the watermark, so units know in each
later epoch that the input has ended, and refuse rows.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from thetastream.core.addresses import hide_secrets
from thetastream.core.arguments import describe_given, read_path
from thetastream.core.errors import QueryError, StateError
from thetastream.core.folder import Folder, split_path
from thetastream.engine.clock import END_US
from thetastream.lowering.identity import EVENT_TIME, NO_COLUMN
from thetastream.runtime.checkpoint_files import find_epochs, read_offsets
from thetastream.spark.observe.metrics import refuse_no_query
from thetastream.spark.sources.identity import read_written

_WATERMARK, _BEGAN = "batchWatermarkMs", "batchTimestampMs"


def finish(start: Callable[[], StreamingQuery], checkpoint: str | Path) -> StreamingQuery:
    """Read what is left of a bounded input, and decide every row of the query: no more rows come.

    Rows of outer, anti and nearest joins wait for the watermark, because a later row may be their partner.
    The watermark follows the rows, so without a later row some of them wait for ever. This function runs the
    query until it has read all rows that are available. Then it runs one more epoch, in which the watermark
    is at the end of time. So all rows are decided, also in joins, windows and groups behind the join. They
    are written exactly once, also if the program is killed and calls the function again.

    The end is kept in the checkpoint. If the query starts again and its sources have more rows for the join,
    it ends with INPUT_ENDED. A query that has read nothing goes on without an end. A stopped query of any
    trigger may be finished.

    Parameters
    ----------
    start : callable
        Starts the query with ``trigger(availableNow=True)`` and returns it. It is called twice.
    checkpoint : str or Path
        The checkpoint of the query, as a path or URI. No query may be running on it.

    Returns
    -------
    StreamingQuery
        The query of the last epoch, which has ended.

    Raises
    ------
    QueryError
        NO_WATERMARK if no join of the query has an event time.
    StateError
        INPUT_ENDED if the input had ended before, and more rows have come. EPOCH_UNFINISHED if the query did
        not commit its last epoch. CHECKPOINT_VERSION if Spark has written the checkpoint in another form.
    StreamingQueryException
        If the query fails.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join({"a": a, "b": b}, on="a.id = b.id", within="1h", how="left")  # doctest: +SKIP
    >>> writer = pairs.writeStream.format("parquet").option("path", "out/pairs")  # doctest: +SKIP
    >>> writer = writer.option("checkpointLocation", "out/checkpoint")  # doctest: +SKIP
    >>> query = th.finish(writer.trigger(availableNow=True).start, "out/checkpoint")  # doctest: +SKIP
    """
    if not callable(start):
        what = "start must be a function that starts the query and returns it, as writer.start"
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(start)}")
    read_path(checkpoint, "checkpoint")
    query = start()
    refuse_no_query("th.finish", query)
    query.awaitTermination()
    if end_input(checkpoint):
        query = start()
        query.awaitTermination()
    return query


def end_input(checkpoint: str | Path) -> bool:
    """Let the next epoch of a stopped query be the one after all its input.

    Returns
    -------
    bool
        False if the input had ended before, or the query has read nothing. Nothing changes then.

    Raises
    ------
    QueryError
        NO_WATERMARK.
    StateError
        EPOCH_UNFINISHED, CHECKPOINT_VERSION.
    """
    where, folder = hide_secrets(str(checkpoint)), Folder(*split_path(str(checkpoint)))
    begun, committed = find_epochs(folder)
    if begun < 0:
        raise StateError("EPOCH_UNFINISHED", f"{where} must have a committed epoch; it has none")
    version, written, *sources = read_offsets(folder, begun, where)
    metadata = json.loads(written)
    if metadata[_WATERMARK] >= END_US // 1000:
        return False
    if begun != committed:
        what = f"epoch {begun} of {where} must be committed; it was interrupted"
        hint = "start the query once with trigger(availableNow=True) and let it end"
        raise StateError("EPOCH_UNFINISHED", f"{what}. Let Spark repeat it first: {hint}")
    if not any(map(_has_event_time, sources)):
        what = "no join of this query has an event time, so no row waits for the end of the input"
        raise QueryError("NO_WATERMARK", f"{what}, and later rows could not be refused; leave finish out")
    if not any(map(_is_read, sources)):
        return False  # No unit would run in the last epoch, so none would refuse later rows.
    last = {**metadata, _WATERMARK: END_US // 1000, _BEGAN: time.time_ns() // 1_000_000}
    text = "\n".join([version, json.dumps(last, separators=(",", ":")), *sources])
    return folder.write_new(f"offsets/{begun + 1}", text.encode())


def _is_read(line: str) -> bool:
    """Whether an offset is that of a source of the user that has been read."""
    return line != "-" and not (line.startswith("{") and "query" in json.loads(line))


def _has_event_time(line: str) -> bool:
    """Whether an offset is that of a join whose streams have event times."""
    offset = json.loads(line) if line.startswith("{") else {}
    identity = read_written(offset["query"]) if "query" in offset else {}
    return any(name.startswith(EVENT_TIME) and part.words != NO_COLUMN for name, part in identity.items())
