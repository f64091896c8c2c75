"""Measures latency at a fixed rate: ``python -m bench handshake --rate 1000``.

The window is filled at once; then a feeder puts a small file of each stream into the watched folders
every 100 ms, so that both streams together advance by ``rate`` tuples per second of real time. Spark's
default trigger starts an epoch as soon as the last one is over and there is input.
"""

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql.streaming import StreamingQuery

from bench.core import check, spark
from bench.core.data import Shape, Task

PERIOD_SECONDS = 0.1
WARM_SECONDS = 40
"""Seconds at the same rate before the measured time."""


def prefill(shape: Shape, folder: Path) -> int:
    """Copy the epochs that fill the window; return their number."""
    epochs = -(-shape.window // shape.epoch)
    for side, alias in enumerate(shape.spec.aliases):
        (folder / alias).mkdir(parents=True)
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


def measure(task: Task, query: spark.Query) -> dict[str, Any]:
    """Fill the window, feed and stop; return the epoch times of the measured seconds and the check."""
    shape = task.shape
    with tempfile.TemporaryDirectory(prefix="bench-rate-") as name:
        folder = Path(name, "streams")
        filled = prefill(shape, folder)
        inputs = spark.streams(query.spark, folder, shape.spec.aliases, files_per_trigger=None)
        running = query.start(inputs, f"{name}/checkpoint", processingTime="0 seconds")

        def epochs() -> list[spark.Epoch]:
            return spark.with_input(spark.epochs(running, query))

        running.processAllAvailable()
        before = len(epochs())
        feeder = threading.Thread(target=feed, args=(task, folder, filled, running))
        started, warm = time.time(), None
        feeder.start()
        while feeder.is_alive():
            feeder.join(0.5)
            if warm is None and time.time() - started > WARM_SECONDS:
                warm = len(epochs())
        running.processAllAvailable()
        found = epochs()
        running.stop()
        query.spark.stop()
        left, right = (
            sorted(str(path) for path in (folder / a).glob("*.parquet")) for a in shape.spec.aliases
        )
        wanted = check.count(shape, (left, right))
    results = sum(epoch.results for epoch in found)
    times = [epoch.ms for epoch in found[warm or before :]]
    return {
        "epoch_ms_p50": float(np.percentile(times, 50)),
        "epoch_ms_p99": float(np.percentile(times, 99)),
        "epoch_ms_mean": float(np.mean(times)),
        "measured_epochs": len(times),
        "ms_by_epoch": [epoch.ms for epoch in found],
        "check": {"epochs": len(found), "expected": wanted, "found": results, "is_equal": results == wanted},
        "form": query.form,
    }
