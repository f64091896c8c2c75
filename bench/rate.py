"""Latency at a fixed rate: ``python -m bench handshake --rate 1000``.

The window is filled at once; then a feeder puts a small file of each stream into the watched folders
every 100 ms, so that both streams together advance by ``rate`` tuples per second of real time. Spark's
default trigger starts an epoch as soon as the last one is over and there is input.
"""

import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQuery

from bench import harness, spark_run
from bench.data import Shape, ensure
from bench.engines.duckdb_batch import connect, select
from bench.machine import describe
from bench.report import cell
from bench.task import Task

PERIOD_SECONDS = 0.1
WARM_SECONDS = 40
"""At the same rate, before the measured time."""


def prefill(shape: Shape, folder: Path) -> int:
    """Link the epochs that fill the window; their number."""
    epochs = -(-shape.window // shape.epoch)
    for side, alias in enumerate(shape.spec.aliases):
        (folder / alias).mkdir()
        for epoch in range(epochs):
            shutil.copy2(shape.file(side, epoch), folder / alias / f"{epoch:06d}.parquet")
    return epochs


def feed(task: Task, folder: Path, first_epoch: int, query: StreamingQuery) -> None:
    """Write slices of the epochs after the window at the task's rate, for warm-up and measurement."""
    shape = task.shape
    size = max(1, round(task.rate / 2 * PERIOD_SECONDS))
    tables = [pq.read_table(shape.file(side, first_epoch)) for side in (0, 1)]
    steps = round((WARM_SECONDS + task.seconds) / PERIOD_SECONDS)
    if steps * size > shape.epoch:
        raise ValueError(f"--epoch ({shape.epoch}) must be at least {steps * size} for this rate and time")
    began = time.monotonic()
    for step in range(steps):
        for alias, table in zip(shape.spec.aliases, tables, strict=True):
            path = folder / alias / f"{first_epoch:06d}-{step:06d}.parquet"
            draft = path.with_name(f"_{path.name}")
            pq.write_table(table.slice(step * size, size), draft)
            os.rename(draft, path)
        time.sleep(max(0.0, began + (step + 1) * PERIOD_SECONDS - time.monotonic()))
        if query.exception():
            return


def measure(task: Task, query: spark_run.Query) -> dict[str, Any]:
    """Fill, feed, stop; epoch times of the measured seconds, and the whole count against DuckDB."""
    shape = task.shape
    with tempfile.TemporaryDirectory(prefix="bench-rate-") as name:
        folder = Path(name, "streams")
        folder.mkdir()
        filled = prefill(shape, folder)
        left, right = spark_run.streams(query.spark, task, str(folder), files_per_trigger=None)
        results = query.join(left, right)
        running = spark_run.start(results, str(Path(name, "checkpoint")), query, processingTime="0 seconds")
        running.processAllAvailable()
        before = len(spark_run.epochs(running, query))
        feeder = threading.Thread(target=feed, args=(task, folder, filled, running))
        started = time.time()
        feeder.start()
        warm = None
        while feeder.is_alive():
            feeder.join(0.5)
            if warm is None and time.time() - started > WARM_SECONDS:
                warm = len(spark_run.epochs(running, query))
        running.processAllAvailable()
        found = spark_run.epochs(running, query)
        running.stop()
        query.spark.stop()
        files = tuple(
            sorted(str(path) for path in (folder / a).glob("*.parquet")) for a in shape.spec.aliases
        )
        row = connect().execute(select(shape, "count(*)", files, shape.workload == "handshake")).fetchone()
    assert row is not None
    results = sum(epoch.results for epoch in found)
    measured = found[warm or before :]
    times = [epoch.ms for epoch in measured]
    return {
        "epoch_ms_p50": float(np.percentile(times, 50)),
        "epoch_ms_p99": float(np.percentile(times, 99)),
        "measured_epochs": len(measured),
        "ms_by_epoch": [epoch.ms for epoch in found],
        "check": {"expected": int(row[0]), "found": results, "is_equal": results == int(row[0])},
        "form": query.form,
    }


def compare(
    tasks: list[Task],
    rate: int,
    seconds: int,
    timeout_seconds: float,
    announce: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The streaming engines at one rate."""
    shape = tasks[0].shape
    ensure(shape)
    engines: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if task.engine == "duckdb":
            continue
        announce(f"{rate:,} tuples/s into {task.engine}")
        result = harness.run_once(replace(task, rate=rate, seconds=seconds), timeout_seconds)
        result["is_correct"] = harness.is_measured(result) and result["check"]["is_equal"]
        if "error" in result:
            announce(result["error"])
        engines[task.engine] = result
    return {
        "workload": shape.workload,
        "window": shape.window,
        "rate": rate,
        "seconds": seconds,
        "seed": shape.seed,
        "engines": engines,
        "is_correct": all(result["is_correct"] for result in engines.values()),
        "machine": describe(),
    }


def markdown(found: dict[str, Any]) -> str:
    """The epochs' times as a table."""
    lines = [
        f"### {found['workload']} at {found['rate']:,} tuples/s, window {found['window']:,}",
        "",
        "| engine | epoch p50 (ms) | p99 (ms) | mean (ms) | epochs | peak memory (MB) | count |",
        "|---|---|---|---|---|---|---|",
    ]
    for engine, result in found["engines"].items():
        if "error" in result:
            lines.append(f"| {engine} | failed | | | | | |")
            continue
        times = result["ms_by_epoch"][-result["measured_epochs"] :]
        figures = [
            cell(result["epoch_ms_p50"], "{:,.0f}"),
            cell(result["epoch_ms_p99"], "{:,.0f}"),
            cell(statistics.mean(times), "{:,.0f}"),
            str(result["measured_epochs"]),
            cell(result["peak_rss_bytes"], "MB"),
            "equal" if result["is_correct"] else "**WRONG**",
        ]
        lines.append(f"| {engine} | " + " | ".join(figures) + " |")
    return "\n".join(lines) + "\n"
