"""Runs a query for each source with ``dead_letters``, which keeps the records that cannot be decoded.

    checkpoint/dead_letters/<source>      the checkpoint of the query, inside the checkpoint of the job
    folder/                               the records, as Parquet files

The join does not wait for these queries. Spark's file sink writes each record once.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from thetastream.app.job.decoding import select_dead
from thetastream.app.job.session import write_option
from thetastream.app.job.spec import Job, SourceSpec
from thetastream.core.spans import write_delay

TRIGGER = "5 seconds"
"""The trigger of these queries if the job has none."""
_METRIC = "dead_letters"


class DeadLetters:
    """The queries that keep the dead records of a job."""

    def __init__(self) -> None:
        self._queries: dict[str, StreamingQuery] = {}
        self._seen: dict[str, int] = {}

    def start(self, spark: SparkSession, job: Job, until_caught_up: bool) -> None:
        """Start a query for each source whose dead records are kept."""
        for source in job.sources:
            if source.dead_letters is not None:
                self._queries[source.name] = _start(spark, job, source, until_caught_up)

    def count_new(self) -> dict[str, Any]:
        """Count the dead records since the last call; return the number as a figure of an epoch.

        It returns no figure if no source keeps dead records. It raises the exception of a query that has
        failed.
        """
        if not self._queries:
            return {}
        total = 0
        for name, query in self._queries.items():
            if not query.isActive:
                query.awaitTermination()  # This raises the exception of a failed query.
            for progress in query.recentProgress:
                if progress.batchId > self._seen.get(name, -1):
                    self._seen[name] = progress.batchId
                    total += _count(progress)
        return {_METRIC: total}

    def finish(self, until_caught_up: bool) -> None:
        """Wait until the queries have read all available input, if they were started to end then."""
        if until_caught_up:
            for query in self._queries.values():
                query.awaitTermination()

    def stop(self) -> None:
        """Stop the queries. They continue from their checkpoints in the next run."""
        for query in self._queries.values():
            query.stop()


def _start(spark: SparkSession, job: Job, source: SourceSpec, until_caught_up: bool) -> StreamingQuery:
    reader = spark.readStream.format(source.format)
    for key, value in source.options.items():
        reader = reader.option(key, write_option(value))
    dead = select_dead(reader.load(), source).observe(_METRIC, F.count(F.lit(1)).alias("n"))
    writer = dead.writeStream.format("parquet").option("path", source.dead_letters or "")
    writer = writer.option("checkpointLocation", f"{job.checkpoint.rstrip('/')}/{_METRIC}/{source.name}")
    if until_caught_up:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=write_delay(job.trigger or TRIGGER))
    return writer.start()


def _count(progress: Any) -> int:
    row = (progress.observedMetrics or {}).get(_METRIC)
    return 0 if row is None else int(row["n"])
