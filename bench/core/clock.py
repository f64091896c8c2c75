"""Whole queries in Spark, many of them in one session, in turn; medians.

A query reads one file of each stream per epoch and hands all columns to the noop sink, as the other
benchmarks do (``bench.core.spark``). One session serves all queries, so the JVM compiles once; two queries
that nobody counts come first.
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.core import data, spark
from bench.core.internals import HASH_COLUMN, Model, Side, stderr_into
from bench.core.query import Query
from bench.core.rows import Check, Row

MEDIANS = ("tuples_per_s", "cpu_us_per_tuple", "epoch_ms_p50", "results_per_tuple")


@dataclass(frozen=True)
class Setting:
    name: str
    query: Query
    model: Model
    epochs: int
    """Parts that the streams are cut into."""
    warmup: int
    """Of them, not measured: the window fills."""
    row: Row
    """What the figure calls it."""
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


@dataclass(frozen=True)
class Ran:
    """What Spark says of a query that has ended."""

    epochs: list[spark.Epoch]
    cpu_seconds: float
    """Of the measured epochs."""
    since: int
    """The first of them."""
    counters: list[dict[str, Any]]
    """``th.metrics``, where epochs are measured."""
    load_before: float

    @property
    def ms(self) -> list[float]:
        return [float(epoch.ms) for epoch in self.epochs]


class Clock:
    """A Spark session that starts when first asked for, and the files that its queries read."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="bench-figures-"))
        self._written: dict[Any, Path] = {}

    def stop(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def session(self) -> SparkSession:
        import thetastream as th

        if self._spark is None:
            conf = {**spark.CONF, "spark.driver.memory": "3g"}
            # Spark's workers say what they do; the progress of the benchmark would be lost in it.
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.local_session(2, "bench-figures", **conf)
        return self._spark

    def files(self, key: Any, streams: Callable[[], Mapping[str, Iterable[pa.Table]]]) -> Path:
        """A folder per stream with a file per epoch, written once for each key."""
        if key not in self._written:
            folder = self._folder / f"{len(self._written)}"
            for alias, tables in streams().items():
                (folder / alias).mkdir(parents=True)
                for number, table in enumerate(tables):
                    data.write(table, folder / alias / f"{number:06d}.parquet", number)
            self._written[key] = folder
        return self._written[key]

    def files_of(self, query: Query, epochs: int) -> Path:
        """The files of a query; queries with the same tables share them."""
        key = (query.name, query.on, query.volume, query.seed, *map(id, query.tables), epochs)
        return self.files(
            key,
            lambda: {
                alias: [
                    pa.Table.from_batches([batch.drop_columns([HASH_COLUMN])])
                    for batch in query.cut(side, epochs)
                ]
                for side, alias in zip(Side, query.aliases, strict=True)
            },
        )

    def run(
        self,
        folder: Path,
        aliases: Iterable[str],
        join: Callable[[dict[str, DataFrame], str], DataFrame],
        observed: list[Column] | None = None,
        measured: tuple[int, int] | None = None,
    ) -> Ran:
        """One query of the files of a folder; ``join`` gets the streams and a folder for mailboxes.

        With ``measured``, (epochs, epochs of them measured), it is stopped behind the last of these;
        without, it runs until nothing is in flight.
        """
        import thetastream as th

        where = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        frame = join(spark.streams(self.session(), folder, aliases), str(where / "mailboxes"))
        load = os.getloadavg()[0]
        counted = observed or [F.expr("count(1)").alias("rows")]
        running = spark.start(frame, where / "checkpoint", counted, availableNow=True)
        cpu_seconds, since, counters = 0.0, 0, []
        if measured is None:
            running.awaitTermination()
        else:
            n, last = measured
            cpu_seconds, since = spark.await_steady(running, n, last, n - last)
            counters = [epoch for epoch in th.metrics(running) if epoch["units"]]
        found = spark.epochs(running)
        shutil.rmtree(where, ignore_errors=True)
        return Ran(found, cpu_seconds, since, counters, load)

    def compare(
        self, settings: list[Setting], repeat: int, announce: Callable[[str], None]
    ) -> dict[str, Timed]:
        runs: dict[str, list[Row]] = {setting.name: [] for setting in settings}
        if self._spark is None:
            announce("warming up Spark")
            for setting in (settings[0], settings[-1]):
                self._measure(setting)
        for turn in range(repeat):
            # There and back again, so that no setting always runs behind the same other one.
            for setting in settings[:: -1 if turn % 2 else 1]:
                run = self._measure(setting)
                runs[setting.name].append({"setting": setting.name, **run})
                announce(
                    f"{turn + 1}/{repeat} {setting.name}: {run['tuples_per_s']:,.0f} tuples/s,"
                    f" {run['cpu_us_per_tuple']:.1f} CPU us/tuple, epoch {run['epoch_ms_p50']:.0f} ms"
                )
        timed = {}
        for setting in settings:
            mine, expected = runs[setting.name], setting.query.expected
            found = next((run["results"] for run in mine if run["results"] != expected), expected)
            median = {name: statistics.median(run[name] for run in mine) for name in MEDIANS}
            timed[setting.name] = Timed(median, mine, Check(f"Spark: {setting.name}", expected, found))
        return timed

    def _measure(self, setting: Setting) -> Row:
        query, n = setting.query, setting.epochs
        options = {} if setting.order is None else {"order": setting.order}
        ran = self.run(
            self.files_of(query, n),
            query.aliases,
            lambda streams, _: query.join(streams, setting.model, **options),
            measured=(n, n - setting.warmup),
        )
        found = spark.with_input(ran.epochs)[:n]
        tuples = sum(end - start for side in Side for start, end in query.bounds(side, n)[ran.since :])
        figures = spark.steady(found, ran.since, tuples // max(1, len(found) - ran.since))
        admitted = sum(epoch["left"] + epoch["right"] for epoch in ran.counters)
        return {
            **{name: figures[name] for name in MEDIANS if name in figures},
            "cpu_us_per_tuple": 1e6 * ran.cpu_seconds / tuples,
            "results": sum(epoch.results for epoch in found),
            "ms_by_epoch": [epoch.ms for epoch in found[ran.since :]],
            "received_per_tuple": sum(epoch["received"] for epoch in ran.counters) / admitted,
            "load_before": ran.load_before,
        }
