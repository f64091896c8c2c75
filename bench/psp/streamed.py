"""The same workloads as whole queries in Spark: files, one of each stream an epoch, to the noop sink.

Epochs bring the same tuples as those of ``replay``, so results come in the same epochs, and the response time
is that of the epochs from the one of the last tuple on, as Spark timed them.
"""

import os
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench import spark_run
from bench.figures.figure import Check, Row
from bench.psp.images import ALIASES, START_US, Streams, Workload, alike, streams_of
from bench.psp.replay import EPOCH_US, cut, models, replay
from thetastream.models import Multiway
from thetastream.models.base import Model
from thetastream.spark.session import stderr_into

OBSERVED = "bench"
SKIPPED = 3
"""Epochs that are not timed: the first ones load and compile."""


def epochs_of(work: Workload, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Per result the epochs of its last tuple and of itself, from the same epochs in one process."""
    if isinstance(model, Multiway):
        same = replay(work, model)
        return same.arrived, same.found
    arrived = replay(work, models(work, 1)["Ring"]).arrived
    return arrived, arrived


class Spark:
    """A session that starts when first asked for, and the files that its queries read."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="bench-psp-"))

    def stop(self) -> None:
        """End the session, remove the files."""
        if self._spark is not None:
            self._spark.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _session(self) -> SparkSession:
        import thetastream as th

        if self._spark is None:
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.local_session(2, "bench-psp", **spark_run.CONF)
        return self._spark

    def run(self, work: Workload, model: Model) -> tuple[Row, Check]:
        """One query: milliseconds from arrival to result and of the median epoch.

        A model of two streams makes it a cascade of such joins; a result leaves as its last tuple comes.
        """
        import thetastream as th

        spark, streams = self._session(), streams_of(work)
        files = self._files(streams)
        where = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        names = ALIASES[: work.streams]
        inputs = {
            alias: spark.readStream.schema("id long, ts timestamp, img binary")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(files / alias))
            .withWatermark("ts", "0 seconds")
            for alias in names
        }
        on = [
            th.predicate(**{left: ["img"], right: ["img"]})(alike(left, right, streams.threshold))
            for left, right in pairwise(names)
        ]
        load = os.getloadavg()[0]
        joined = th.join(
            inputs, on, f"{work.window_us} microseconds", model, mailbox=str(where / "mailboxes")
        )
        query = (
            joined.observe(OBSERVED, F.expr("count(1) AS n"))
            .writeStream.format("noop")
            .option("checkpointLocation", str(where / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        ms = [float(progress["durationMs"]["triggerExecution"]) for progress in query.recentProgress]
        matched = sum(
            row["n"] for progress in query.recentProgress if (row := progress.observedMetrics.get(OBSERVED))
        )
        shutil.rmtree(where, ignore_errors=True)
        arrived, found = epochs_of(work, model)
        late = arrived >= SKIPPED
        until = np.concatenate([[0.0], np.cumsum(ms)])
        waits = until[found[late] + 1] - until[arrived[late]]
        return {
            "response_ms": float(waits.mean()),
            "epoch_ms": float(np.median(ms[SKIPPED:])),
            "response_epochs": float(np.mean(found - arrived + 1)),
            "load_before": load,
        }, Check(f"Spark: {model!r}", streams.expected, matched)

    def _files(self, streams: Streams) -> Path:
        folder = self._folder / f"{abs(hash(streams.work))}"
        if folder.exists():
            return folder
        for n in range(streams.work.streams):
            (folder / ALIASES[n]).mkdir(parents=True)
            table = streams.table(n).rename_columns(["id", "ts", "img"])
            stamps = table.column("ts").cast(pa.timestamp("us", "UTC"))
            table = table.set_column(1, "ts", stamps)
            cuts = np.arange(START_US, streams.end_us + EPOCH_US, EPOCH_US)
            ends = np.searchsorted(streams.times[n], cuts, side="right")
            for number, (start, end) in enumerate(pairwise(ends)):
                path = folder / ALIASES[n] / f"{number:06d}.parquet"
                batch: Any = cut(table, start, end)
                part = table.schema.empty_table() if batch is None else pa.Table.from_batches([batch])
                pq.write_table(part, path)
                # Spark reads files in the order of their times.
                os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
        return folder
