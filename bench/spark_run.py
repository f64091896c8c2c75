"""One streaming run on Spark, from files to the noop sink, measured by Spark's own query progress.

One micro-batch is one file of each stream (``maxFilesPerTrigger=1``, trigger ``availableNow``). An
epoch's time is ``durationMs.triggerExecution``: planning, logs, execution, commits. ``observe``
counts the results of every epoch on the way to the sink, so the measured run is itself checked.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from bench.footprint import cpu_seconds_of_tree
from bench.steady import Epoch, steady
from bench.task import Task

OBSERVED = "bench"
POLL_SECONDS = 0.25
CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": 100_000,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


@dataclass(frozen=True)
class Query:
    """What an engine makes of the two streams."""

    spark: SparkSession
    join: Callable[[DataFrame, DataFrame], DataFrame]
    form: str
    counters: Callable[[StreamingQuery], dict[int, dict[str, int]]] | None = None
    """``state_bytes`` and ``emitted_bytes`` per epoch, where Spark's progress does not say it."""
    mode: str = "append"
    results: str = "count(1)"
    """SQL of the number of results, over the rows that reach the sink."""
    is_running: bool = False
    """Whether ``results`` counts those of all epochs so far."""
    extra: dict[str, Any] = field(default_factory=dict)


def stream(spark: SparkSession, folder: str, ddl: str, files_per_trigger: int | None = 1) -> DataFrame:
    """A folder of Parquet files as a stream with event time."""
    reader = spark.readStream.schema(f"{ddl}, ts TIMESTAMP")
    if files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_trigger)
    return reader.parquet(folder).withWatermark("ts", "0 seconds")


def streams(
    spark: SparkSession, task: Task, folder: str, files_per_trigger: int | None = 1
) -> tuple[DataFrame, DataFrame]:
    """Both streams of a task."""
    spec = task.shape.spec
    left, right = (
        stream(spark, f"{folder}/{alias}", ddl, files_per_trigger)
        for alias, ddl in zip(spec.aliases, spec.schema, strict=True)
    )
    return left, right


def start(results: DataFrame, checkpoint: str, query: Query, **trigger: Any) -> StreamingQuery:
    """Count the results in passing and hand all columns to the noop sink."""
    counted = results.observe(OBSERVED, F.expr(query.results).alias("rows"))
    writer = counted.writeStream.format("noop").outputMode(query.mode)
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()


def epochs(query: StreamingQuery, made: Query) -> list[Epoch]:
    """What the progress of a query says, epoch by epoch; epochs without input are left out."""
    found: list[Epoch] = []
    counters = made.counters(query) if made.counters else None
    so_far = 0
    for progress in query.recentProgress:
        fields = progress if isinstance(progress, dict) else json.loads(progress.json)
        if not fields["numInputRows"]:
            continue
        batch = fields["batchId"]
        durations = fields["durationMs"]
        observed = (fields.get("observedMetrics") or {}).get(OBSERVED)
        rows = observed["rows"] if observed is not None else 0
        ours = None if counters is None else counters.get(batch, {})
        found.append(
            Epoch(
                number=batch,
                ms=durations["triggerExecution"],
                tuples=fields["numInputRows"],
                results=rows - so_far,
                state_bytes=spark_state_bytes(fields) if ours is None else ours.get("state_bytes"),
                emitted_bytes=None if ours is None else ours.get("emitted_bytes"),
                phases_ms=dict(durations),
            )
        )
        so_far = rows if made.is_running else 0
    return found


def spark_state_bytes(fields: dict[str, Any]) -> int:
    """State of all operators: files on disk for RocksDB, heap for the default provider."""
    total = 0
    for operator in fields.get("stateOperators") or []:
        custom = operator.get("customMetrics") or {}
        on_disk = custom.get("rocksdbSstFileSize")
        total += operator.get("memoryUsedBytes", 0) if on_disk is None else on_disk
    return total


def measure(task: Task, query: Query) -> dict[str, Any]:
    """Run all epochs of a task and report the steady ones."""
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    try:
        left, right = streams(query.spark, task, str(task.shape.folder))
        running = start(query.join(left, right), checkpoint, query, availableNow=True)
        cpu_seconds, since = await_steady(running, task)
        found = epochs(running, query)
    finally:
        query.spark.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    found = found[: since + task.epochs]
    if len(found) < since + task.epochs:
        raise RuntimeError(f"expected {since + task.epochs} epochs with input, Spark reports {len(found)}")
    figures = steady(found, since, 2 * task.shape.epoch)
    tuples = 2 * task.shape.epoch * task.epochs
    form = {"form": query.form, "warmup_epochs": since}
    return {**figures, "cpu_us_per_tuple": 1e6 * cpu_seconds / tuples, **form, **query.extra}


def await_steady(query: StreamingQuery, task: Task) -> tuple[float, int]:
    """Wait for the warm-up and the measured epochs, then stop the query.

    Returns the CPU time of this process tree in the measured epochs, and the first of them. CPU time
    per tuple says what a join costs even when other work keeps the machine busy.
    """
    started = time.monotonic()
    last_start = task.shape.epochs - task.epochs
    mark: tuple[float, int] | None = None
    while True:
        is_over = query.awaitTermination(POLL_SECONDS)
        last = query.lastProgress
        done = 0 if last is None else int(last["batchId"]) + 1
        is_warm = done >= task.warmup and time.monotonic() - started >= task.warmup_seconds
        if mark is None and (is_warm or done >= last_start):
            mark = cpu_seconds_of_tree(), min(done, last_start)
        if mark is not None and (is_over or done >= mark[1] + task.epochs):
            spent = cpu_seconds_of_tree() - mark[0]
            query.stop()
            return spent, mark[1]
        if is_over:
            raise RuntimeError(f"the query ended after {done} epochs")
