"""Whole queries in Spark, many of them in one session, in turn; medians.

A query reads one file of each stream per epoch and hands all columns of both sides to the noop sink, as the
other benchmarks do (``bench.spark_run``). The first epochs fill the window and are not measured. One
session serves all queries, so the JVM compiles once; two queries that nobody counts come first.
"""

import os
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import data, spark_run
from bench.data import Shape
from bench.figures.figure import Check, Row
from bench.figures.query import Query
from bench.steady import steady
from bench.task import Task
from thetastream.blocks import HASH_COLUMN
from thetastream.models.base import Model
from thetastream.spark.session import stderr_into
from thetastream.types import Side

MEDIANS = ("tuples_per_s", "cpu_us_per_tuple", "epoch_ms_p50", "results_per_tuple")


@dataclass(frozen=True)
class Setting:
    """One query as it is run."""

    name: str
    query: Query
    model: Model
    epochs: int
    """Parts that the streams are cut into."""
    warmup: int
    """Of them, not measured."""
    order: str | int | None = None


@dataclass(frozen=True)
class Timed:
    """What came of a setting: medians, the single runs, the check."""

    median: Row
    runs: list[Row]
    check: Check

    def latency_ms(self, percentile: float) -> float:
        """Of tuples that come evenly: what is left of the running epoch, and all of their own."""
        left = np.linspace(0, 1, 21)
        waits = [own + before * left for run in self.runs for before, own in pairwise(run["ms_by_epoch"])]
        return float(np.percentile(waits, percentile))


class Clock:
    """A Spark session that starts when first asked for, and the files that its queries read."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._spark: SparkSession | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="bench-figures-"))
        self._written: dict[tuple[Any, ...], Path] = {}
        self._expected: dict[tuple[Any, ...], int] = {}

    def stop(self) -> None:
        """End the session, remove the files."""
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def compare(self, settings: list[Setting], repeat: int, announce: Any) -> dict[str, Timed]:
        """All settings ``repeat`` times in turn."""
        runs: dict[str, list[Row]] = {setting.name: [] for setting in settings}
        if self._spark is None:
            announce("warming up Spark")
            for setting in (settings[0], settings[-1]):
                self._run(setting)
        for turn in range(repeat):
            # There and back again, so that no setting always runs behind the same other one.
            for setting in settings[:: -1 if turn % 2 else 1]:
                run = self._run(setting)
                runs[setting.name].append({"setting": setting.name, **run})
                announce(
                    f"{turn + 1}/{repeat} {setting.name}: {run['tuples_per_s']:,.0f} tuples/s,"
                    f" {run['cpu_us_per_tuple']:.1f} CPU us/tuple, epoch {run['epoch_ms_p50']:.0f} ms"
                )
        return {
            setting.name: Timed(
                {name: statistics.median(run[name] for run in runs[setting.name]) for name in MEDIANS},
                runs[setting.name],
                self._check(setting, runs[setting.name]),
            )
            for setting in settings
        }

    def _check(self, setting: Setting, runs: list[Row]) -> Check:
        expected = self._count(setting.query)
        wrong = [run["results"] for run in runs if run["results"] != expected]
        return Check(f"Spark: {setting.name}", expected, wrong[0] if wrong else expected)

    def _count(self, query: Query) -> int:
        key = (*_identity(query), query.window_us)
        if key not in self._expected:
            self._expected[key] = query.expected()
        return self._expected[key]

    def _run(self, setting: Setting) -> Row:
        import thetastream as th

        spark = self.session()
        query = setting.query
        folder = self.files(query, setting.epochs)
        checkpoint = tempfile.mkdtemp(prefix="checkpoint-", dir=self._folder)
        left, right = (
            spark.readStream.schema(spark.read.parquet(str(folder / alias)).schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / alias))
            .withWatermark("ts", "0 seconds")
            for alias in query.aliases
        )

        def join(left: DataFrame, right: DataFrame) -> DataFrame:
            options: dict[str, Any] = {"order": setting.order, "index": "scan" if query.is_scanned else None}
            return th.join(
                dict(zip(query.aliases, (left, right), strict=True)),
                on=query.on,
                within=None if query.window_us is None else f"{query.window_us} microseconds",
                model=setting.model,
                **{name: value for name, value in options.items() if value is not None},
            )

        made = spark_run.Query(spark, join, repr(setting.model))
        n = setting.epochs
        task = Task("figures", Shape(query.name, 0, 0, n, self._seed), setting.warmup, 0, n - setting.warmup)
        load = os.getloadavg()[0]
        running = spark_run.start(join(left, right), checkpoint, made, availableNow=True)
        cpu_seconds, since = spark_run.await_steady(running, task)
        found = spark_run.epochs(running, made)[:n]
        counted = [epoch for epoch in th.metrics(running) if epoch["units"]]
        shutil.rmtree(checkpoint, ignore_errors=True)
        tuples = sum(end - start for side in Side for start, end in query.bounds(side, n)[since:])
        figures = steady(found, since, tuples // max(1, len(found) - since))
        admitted = sum(epoch["left"] + epoch["right"] for epoch in counted)
        return {
            "tuples_per_s": figures["tuples_per_s"],
            "cpu_us_per_tuple": 1e6 * cpu_seconds / tuples,
            "epoch_ms_p50": figures["epoch_ms_p50"],
            "results_per_tuple": figures["results_per_tuple"],
            "results": sum(epoch.results for epoch in found),
            "ms_by_epoch": [epoch.ms for epoch in found[since:]],
            "received_per_tuple": sum(epoch["received"] for epoch in counted) / admitted,
            "received_bytes_per_tuple": sum(epoch["received_bytes"] for epoch in counted) / admitted,
            "load_before": load,
        }

    def session(self) -> SparkSession:
        """The session, started when first asked for."""
        import thetastream as th

        if self._spark is None:
            conf = {**spark_run.CONF, "spark.driver.memory": "3g"}
            # Spark's workers say what they do; the progress of the benchmark would be lost in it.
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.local_session(2, "bench-figures", **conf)
        return self._spark

    def files(self, query: Query, epochs: int) -> Path:
        """A folder per stream with a file per epoch, written once."""
        key = (*_identity(query), epochs)
        if key not in self._written:
            folder = self._folder / f"{len(self._written)}"
            for side, alias in zip(Side, query.aliases, strict=True):
                (folder / alias).mkdir(parents=True)
                for number, batch in enumerate(query.cut(side, epochs)):
                    table = pa.Table.from_batches([batch.drop_columns([HASH_COLUMN])])
                    data.write(table, folder / alias / f"{number:06d}.parquet", number)
            self._written[key] = folder
        return self._written[key]


def _identity(query: Query) -> tuple[Any, ...]:
    """Queries with the same tables and the same condition have the same."""
    return query.name, query.on, query.volume, query.seed, *map(id, query.tables)
