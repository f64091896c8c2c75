"""Results into Parquet files on three ways: by units, as rows by ``th.write``, and by Spark's own sink.

The join, the session and the selected columns are the same. Rows that units write do not pass Spark, so the
results of an epoch are the matches that units count; ``core/check.py`` compares them with DuckDB's.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import thetastream as th
from bench.core import spark
from bench.core.data import Task
from bench.core.engines import thetastream

FORMS = {
    "units": "th.write, by units",
    "rows": "th.write, rows",
    "parquet": "Spark's Parquet sink",
}
SINK = {"spark.sql.streaming.fileSink.log.compactInterval": 1000}
"""Spark's sink merges its log every so many epochs, and needs the entries of all epochs before. A query that
continues from a checkpoint with a full window has none of the first epochs."""


@dataclass(frozen=True)
class FileQuery(spark.Query):
    """A join whose results end in files, beside the checkpoint."""

    way: str = "units"

    def start(self, streams: dict[str, DataFrame], checkpoint: Any, **trigger: Any) -> StreamingQuery:
        pairs, folder = self.join(streams), f"{checkpoint}/results"
        select = [
            f"{alias}.{name} AS {alias}_{name}" for alias, frame in streams.items() for name in frame.columns
        ]
        if self.way == "parquet":
            writer = pairs.selectExpr(*select).writeStream.format("parquet").option("path", folder)
            writer = writer.option("checkpointLocation", str(checkpoint))
            return writer.trigger(**(trigger or {"availableNow": True})).start()
        # Behind where(), the rows are no longer those of a plan, so Spark hands them to the store.
        frame = pairs if self.way == "units" else pairs.where("true")
        store, when = th.ParquetStore(folder), trigger.get("processingTime", "available now")
        return th.write(frame, store, select=select, checkpoint=str(checkpoint), trigger=when)


def count(query: StreamingQuery) -> dict[int, dict[str, int]]:
    """Read the counters of each epoch, and its results."""
    found = thetastream.counters(query)
    for epoch in th.metrics(query):
        if epoch["units"]:
            found[epoch["epoch"]]["results"] = epoch["matched"]
    return found


def prepare(task: Task) -> FileQuery:
    """Make the session and query of a task."""
    units = {**thetastream.DEFAULTS, **task.options}
    conf = {**spark.CONF, **SINK, "spark.driver.memory": task.driver_memory}
    return FileQuery(
        th.local_session(2, f"bench-{task.engine}", **conf),
        lambda streams: th.join(**thetastream.asked(task, streams, units["m"], units["n"])),
        FORMS.get(task.engine, ""),
        count,
        way=task.engine,
    )
