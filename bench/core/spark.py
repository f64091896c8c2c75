"""Runs one stream on Spark, from files to the noop sink, and measures it by Spark's own query progress.

One micro-batch is one file of each stream (``maxFilesPerTrigger=1``, trigger ``availableNow``). An
epoch's time is ``durationMs.triggerExecution``: planning, logs, execution, commits. ``observe``
counts the results of every epoch on the way to the sink, so the measured run is itself checked.

Only epochs after the warm-up count. The warm-up is longer than the window, so that every measured epoch joins
with a full window and expires as much as it stores.
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from bench.core.cpu_times import CpuTimes, measure_cpu

OBSERVED = "bench"
REFUSAL = "is not supported"
"""The words with which Spark refuses a join."""
POLL_SECONDS = 0.25
CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": 100_000,
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
}


@dataclass(frozen=True)
class Query:
    """The query that an engine makes of the streams."""

    spark: SparkSession
    join: Callable[[dict[str, DataFrame]], DataFrame]
    form: str
    counters: Callable[[StreamingQuery], dict[int, dict[str, int]]] | None = None
    """It reads ``state_bytes``, ``emitted_bytes`` and ``results`` of each epoch if Spark's progress lacks
    them."""
    mode: str = "append"
    results: str = "count(1)"
    """The SQL that counts the results, over the rows that reach the sink."""
    is_running: bool = False
    """Whether ``results`` counts the results of all epochs so far."""
    reads_by_arrow: bool = False
    """Whether its streams come from ``th.read_parquet``, and not from Spark's reader."""

    def start(self, streams: dict[str, DataFrame], checkpoint: Any, **trigger: Any) -> StreamingQuery:
        """Start the query and count its results."""
        counted = F.expr(self.results).alias("rows")
        return start(self.join(streams), checkpoint, [counted], self.mode, **trigger)


@dataclass(frozen=True)
class Epoch:
    number: int
    ms: int
    tuples: int
    results: int
    state_bytes: int | None = None
    emitted_bytes: int | None = None
    phases_ms: dict[str, int] = field(default_factory=dict)
    observed: Any = None
    """All values that were observed in the epoch."""


def streams(
    spark: SparkSession,
    folder: Any,
    aliases: Any,
    files_per_trigger: int | None = 1,
    reads_by_arrow: bool = False,
) -> dict[str, DataFrame]:
    """Read a folder of Parquet files for each alias as a stream with event time."""
    options = {} if files_per_trigger is None else {"maxFilesPerTrigger": files_per_trigger}
    found = {}
    for alias in aliases:
        files = f"{folder}/{alias}"
        schema = spark.read.parquet(files).schema
        if reads_by_arrow:
            read = th.read_parquet(spark, files, schema, **options)
        else:
            read = spark.readStream.schema(schema).options(**options).parquet(files)
        found[alias] = read.withWatermark("ts", "0 seconds")
    return found


def start(
    results: DataFrame, checkpoint: Any, observed: list[Column], mode: str = "append", **trigger: Any
) -> StreamingQuery:
    """Start the query: observe the results, and write all columns to the noop sink."""
    writer = results.observe(OBSERVED, *observed).writeStream.format("noop").outputMode(mode)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


def epochs(running: StreamingQuery, query: Query | None = None) -> list[Epoch]:
    """Read the progress of a query: its epochs, also those without input."""
    found: list[Epoch] = []
    counters = query.counters(running) if query and query.counters else None
    so_far = 0
    for fields in running.recentProgress:
        number, durations = fields["batchId"], fields["durationMs"]
        observed = (fields.get("observedMetrics") or {}).get(OBSERVED)
        rows = 0 if observed is None else observed.asDict().get("rows", 0)
        ours = None if counters is None else counters.get(number, {})
        rows = rows if ours is None else ours.get("results", rows)
        found.append(
            Epoch(
                number,
                durations["triggerExecution"],
                fields["numInputRows"],
                results=rows - so_far,
                state_bytes=spark_state_bytes(fields) if ours is None else ours.get("state_bytes"),
                emitted_bytes=None if ours is None else ours.get("emitted_bytes"),
                phases_ms=dict(durations),
                observed=observed,
            )
        )
        so_far = rows if query and query.is_running and fields["numInputRows"] else so_far
    return found


def with_input(found: list[Epoch]) -> list[Epoch]:
    return [epoch for epoch in found if epoch.tuples]


def spark_state_bytes(fields: dict[str, Any]) -> int:
    """Add the state of all operators: files for RocksDB, heap for the default provider."""
    total = 0
    for operator in fields.get("stateOperators") or []:
        on_disk = (operator.get("customMetrics") or {}).get("rocksdbSstFileSize")
        total += operator.get("memoryUsedBytes", 0) if on_disk is None else on_disk
    return total


def measure(task: Any, query: Query) -> dict[str, Any]:
    """Run all epochs of a task; report the steady ones, or the error with which Spark refuses the query."""
    shape = task.shape
    checkpoint = tempfile.mkdtemp(prefix="bench-checkpoint-")
    try:
        if task.full_window is not None:
            shutil.copytree(task.full_window, checkpoint, dirs_exist_ok=True)
        by_arrow = query.reads_by_arrow
        inputs = streams(query.spark, shape.folder, shape.spec.aliases, reads_by_arrow=by_arrow)
        running = query.start(inputs, checkpoint)
        spent, since = await_steady(running, shape.epochs, task.epochs, task.warmup, task.warmup_seconds)
        found = with_input(epochs(running, query))
        first = found[0].number
        found = found[: since - first + task.epochs]
    except (AnalysisException, StreamingQueryException) as error:
        # Some joins are refused only when their first epoch is planned, which is a failure of the query.
        if REFUSAL not in str(error):
            raise
        return {"refused": str(error).splitlines()[0], "form": "refused"}
    finally:
        query.spark.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    if len(found) < since - first + task.epochs:
        expected = since - first + task.epochs
        raise RuntimeError(f"expected {expected} epochs with input, Spark reports {len(found)}")
    cpu_us = 1e6 * spent.living_s / (2 * shape.epoch * task.epochs)
    figures = steady(found, since - first, 2 * shape.epoch)
    return {
        **figures,
        "first_epoch": first,
        "cpu_us_per_tuple": cpu_us,
        "form": query.form,
        "warmup_epochs": since,
    }


def await_steady(
    query: StreamingQuery, total: int, measured: int, warmup: int, warmup_seconds: float = 0
) -> tuple[CpuTimes, int]:
    """Wait for the warm-up and the measured epochs of ``total``, then stop the query.

    Return the CPU time of this process tree in the measured epochs, and the number of the first one. CPU time
    per tuple is the cost of a join even if other work uses the machine.
    """
    started = time.monotonic()
    mark: tuple[CpuTimes, int] | None = None
    while True:
        is_over = query.awaitTermination(POLL_SECONDS)  # type: ignore[arg-type]
        done = count_done(query)
        is_warm = done >= warmup and time.monotonic() - started >= warmup_seconds
        if mark is None and (is_warm or done >= total - measured):
            mark = measure_cpu(), min(done, total - measured)
        if mark is not None and (is_over or done >= mark[1] + measured):
            spent = measure_cpu().since(mark[0])
            query.stop()
            return spent, mark[1]
        if is_over:
            raise RuntimeError(f"the query ended after {done} epochs")


def count_done(query: StreamingQuery) -> int:
    """Count the epochs of a query that are over, also those before the checkpoint from which it continues."""
    last = query.lastProgress
    return 0 if last is None else int(last["batchId"]) + 1


def steady(epochs: list[Epoch], since: int, tuples_per_epoch: int | None = None) -> dict[str, Any]:
    """Compute the figures of the epochs from ``since`` on.

    ``tuples_per_epoch`` replaces Spark's numInputRows, which counts a tuple again for every branch
    of the plan that reads it.

    >>> found = [Epoch(0, 900, 10, 1), Epoch(1, 100, 10, 2), Epoch(2, 300, 10, 4)]
    >>> figures = steady(found, since=1)
    >>> figures["tuples_per_s"], figures["results_per_s"], figures["epoch_ms_p50"]
    (50.0, 15.0, 200.0)
    >>> figures["results_by_epoch"]
    [1, 2, 4]
    """
    measured = epochs[since:]
    times = [epoch.ms for epoch in measured]
    seconds = sum(times) / 1000
    tuples = sum(tuples_per_epoch or epoch.tuples for epoch in measured)
    results = sum(epoch.results for epoch in measured)
    states = [epoch.state_bytes for epoch in measured if epoch.state_bytes is not None]
    emitted = [epoch.emitted_bytes for epoch in measured if epoch.emitted_bytes is not None]
    phases = sorted({name for epoch in measured for name in epoch.phases_ms})
    return {
        "tuples_per_s": tuples / seconds,
        "results_per_s": results / seconds,
        "results_per_tuple": results / tuples,
        "epoch_ms_p50": float(np.percentile(times, 50)),
        "epoch_ms_p99": float(np.percentile(times, 99)),
        "epoch_ms_mean": float(np.mean(times)),
        "state_bytes": max(states, default=None),
        "emitted_bytes": sum(emitted) / len(emitted) if emitted else None,
        "measured_epochs": len(measured),
        "measured_seconds": seconds,
        "results_by_epoch": [epoch.results for epoch in epochs],
        "ms_by_epoch": [epoch.ms for epoch in epochs],
        "state_bytes_by_epoch": [epoch.state_bytes for epoch in epochs],
        "phases_ms_median": {
            name: float(np.median([epoch.phases_ms.get(name, 0) for epoch in measured])) for name in phases
        },
    }
