"""Measures whole queries in Spark: many queries in one session, in turn, and their medians.

A query reads one file of each stream per epoch and hands all columns to the noop sink, as the other
benchmarks do (``bench.core.spark``). One session serves all queries, so the JVM compiles once; two queries
that nobody counts come first.
"""

import os
import shutil
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
from bench.core.cpu_times import CpuTimes
from bench.core.internals import Model, Side, stderr_into
from bench.core.query import Query
from bench.core.rows import Check, Row, find_medians, measure_in_turn

MEDIANS = ("tuples_per_s", "cpu_us_per_tuple", "epoch_ms_p50", "results_per_tuple")


@dataclass(frozen=True)
class Setting:
    name: str
    query: Query
    model: Model
    epochs: int
    """Number of parts into which the streams are cut."""
    warmup: int
    """Number of first epochs that are not measured, because the window fills in them."""
    row: Row
    """The columns by which the figure names the setting."""
    order: str | int | None = None


@dataclass(frozen=True)
class Timed:
    """The result of a setting: medians, single runs, and the check of its count."""

    median: Row
    runs: list[Row]
    check: Check

    def latency_ms(self, percentile: float) -> float:
        """Compute the latency of tuples that arrive evenly: the rest of one epoch and all of their own."""
        left = np.linspace(0, 1, 21)
        waits = [own + before * left for run in self.runs for before, own in pairwise(run["ms_by_epoch"])]
        return float(np.percentile(waits, percentile))


@dataclass(frozen=True)
class Ran:
    """Progress and costs of a query that has ended."""

    epochs: list[spark.Epoch]
    cpu: CpuTimes
    """CPU seconds of the measured epochs."""
    since: int
    """The number of the first measured epoch."""
    counters: list[dict[str, Any]]
    """The rows of ``th.metrics`` if epochs are measured."""
    load_before: float

    @property
    def ms(self) -> list[float]:
        return [float(epoch.ms) for epoch in self.epochs]


class Clock:
    """Runs queries in one Spark session, which starts at the first query, and keeps their files."""

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="bench-figures-"))
        self._written: dict[Any, Path] = {}

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def session(self) -> SparkSession:
        import thetastream as th

        if self._spark is None:
            conf = {**spark.CONF, "spark.driver.memory": "3g"}
            # The messages of Spark's workers go to a file. They would hide the progress of the benchmark.
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.local_session(2, "bench-figures", **conf)
        return self._spark

    def files(self, key: Any, streams: Callable[[], Mapping[str, Iterable[pa.Table]]]) -> Path:
        """Write a folder for each stream with a file for each epoch, once for each key."""
        if key not in self._written:
            folder = self._folder / f"{len(self._written)}"
            for alias, tables in streams().items():
                (folder / alias).mkdir(parents=True)
                for number, table in enumerate(tables):
                    data.write(table, folder / alias / f"{number:06d}.parquet", number)
            self._written[key] = folder
        return self._written[key]

    def files_of(self, query: Query, epochs: int) -> Path:
        """Write the files of a query. Queries with the same tables share them."""
        key = (query.name, query.on, query.volume, query.seed, *map(id, query.tables), epochs)
        return self.files(key, lambda: query.files(epochs))

    def run(
        self,
        folder: Path,
        aliases: Iterable[str],
        join: Callable[[dict[str, DataFrame], str], DataFrame],
        observed: list[Column] | None = None,
        measured: tuple[int, int] | None = None,
        warmup: int | None = None,
        warmup_seconds: float = 0,
        files_per_epoch: int = 1,
    ) -> Ran:
        """Run one query over the files of a folder. ``join`` gets the streams and a folder for mailboxes.

        ``measured`` is the number of epochs, and the number of measured ones: the query is stopped after the
        last. Without it, the query runs until no message is in flight. With ``warmup``, the measured epochs
        begin when so many epochs are over and ``warmup_seconds`` have passed, at the latest with the last.
        """
        import thetastream as th

        where = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
        streams = spark.streams(self.session(), folder, aliases, files_per_epoch)
        frame = join(streams, str(where / "mailboxes"))
        load = os.getloadavg()[0]
        running = spark.start(frame, where / "checkpoint", observed or [F.count(F.lit(1)).alias("rows")])
        spent, since, counters = CpuTimes(0, 0, 0, 0), 0, []
        if measured is None:
            running.awaitTermination()
        else:
            n, last = measured
            first = n - last if warmup is None else warmup
            spent, since = spark.await_steady(running, n, last, first, warmup_seconds)
            counters = [epoch for epoch in th.metrics(running) if epoch["units"]]
        found = spark.epochs(running)
        shutil.rmtree(where, ignore_errors=True)
        return Ran(found, spent, since, counters, load)

    def compare(
        self, settings: list[Setting], repeat: int, announce: Callable[[str], None]
    ) -> dict[str, Timed]:
        if self._spark is None:
            announce("warming up Spark")
            for setting in (settings[0], settings[-1]):
                self._measure(setting)
        named = {setting.name: setting for setting in settings}

        def measure(name: str, turn: str) -> Row:
            run = self._measure(named[name])
            announce(
                f"{turn}: {run['tuples_per_s']:,.0f} tuples/s, {run['cpu_us_per_tuple']:.1f} CPU us/tuple,"
                f" epoch {run['epoch_ms_p50']:.0f} ms"
            )
            return {"setting": name, **run}

        timed = {}
        for name, runs in measure_in_turn(named, repeat, measure).items():
            expected = named[name].query.expected
            found = next((run["results"] for run in runs if run["results"] != expected), expected)
            timed[name] = Timed(find_medians(runs, MEDIANS), runs, Check(f"Spark: {name}", expected, found))
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
            "cpu_us_per_tuple": 1e6 * ran.cpu.living_s / tuples,
            "results": sum(epoch.results for epoch in found),
            "ms_by_epoch": [epoch.ms for epoch in found[ran.since :]],
            "received_per_tuple": sum(epoch["received"] for epoch in ran.counters) / admitted,
            "load_before": ran.load_before,
        }
