"""The cost model beside runs on executors: ``python -m bench executors``.

    { (l, r) : |l.v - r.v| <= 32 } in a window of four epochs

A join runs on 1, 2 and 4 executors of one core each, with as many units as executors and at least two. The
same setting goes into ``compute_uses`` of the simulator, with the measured sizes of tuples. An epoch costs

    CPU seconds    units * (use of a core) * seconds of an epoch + seconds of the driver
    seconds        units * (use of a core) * seconds of an epoch / cores + seconds of the driver

and ``cores`` are those that the machine has for the executors. CPU time is compared, because it depends less
on other work of the machine than the seconds of an epoch. The target is 20 %. A miss is shown, and does not
change the exit code, which is 1 if a count is wrong.
"""

import argparse
import contextlib
import os
from collections.abc import Callable
from statistics import median
from typing import Any

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock, Ran
from bench.core.floor import REACH, VALUES, WINDOW_EPOCHS, make_query
from bench.core.internals import Cluster, Setting, compute_uses, stderr_into
from bench.core.publishing import publish_table
from bench.core.query import Query
from bench.core.rows import Row, find_medians, measure_in_turn
from thetastream.models import Biclique

EXECUTORS, SIZES = (1, 2, 4), (20_000, 100_000)
"""Numbers of executors, and of tuples of a stream in an epoch."""
EPOCHS, WARMUP = 12, 18
TARGET = 0.2
SHOWN = (
    "executors; units; size|tuples of a stream; cpu_s|CPU seconds; predicted_cpu_s|predicted;"
    " cpu_error|off by; epoch_s|seconds; predicted_s|predicted; epoch_error|off by; load_before|load before;"
    " is_within|CPU within 20 %; is_correct|count is correct"
)


class ExecutorClock(Clock):
    """Runs queries on a number of executors, which are processes of this machine with one core each."""

    def __init__(self, executors: int, units: int) -> None:
        super().__init__()
        self._executors, self._units = executors, units

    def session(self) -> Any:
        if self._spark is None:
            builder = spark.SparkSession.builder.master(f"local-cluster[{self._executors},1,1024]")
            for name, value in {**spark.CONF, "spark.executor.memory": "1g"}.items():
                builder = builder.config(name, value)
            with stderr_into(self._folder / "spark.log"):
                self._spark = th.configure(builder, partitions=self._units).getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
        return self._spark


def predict(ran: Ran, executors: int, units: int, size: int) -> Row:
    """Predict the costs of an epoch from the sizes of tuples that a run has shown."""
    cores = min(executors, os.cpu_count() or 1)
    shown = ran.counters[-1]
    setting = Setting(
        window_s=WINDOW_EPOCHS,
        stored_bytes=shown["state_bytes"] / shown["held"],
        sent_bytes=shown["received_bytes"] / shown["received"],
        candidates=WINDOW_EPOCHS * size * (2 * REACH + 1) / VALUES,
    )
    # An epoch brings the tuples of one second. Its length is found here, and need not be one second.
    cluster = Cluster(epoch_s=1.0, cores_per_machine=units)
    uses = {
        resource.name: use
        for resource, use in compute_uses(make_model(units), setting, cluster, 2.0 * size).items()
    }
    core_s = units * uses["cores"]
    return {
        "predicted_cpu_s": core_s + uses["driver"],
        "predicted_s": core_s / cores + uses["driver"],
    }


def make_model(units: int) -> Biclique:
    """Make the model with half of the units on each side."""
    return Biclique((units // 2, units // 2))


def run_once(query: Query, executors: int, size: int, announce: Callable[[str], None], turn: str) -> Row:
    """Run a join on executors that are started for it."""
    units, n = max(2, executors), EPOCHS + WARMUP
    with contextlib.closing(ExecutorClock(executors, units)) as clock:
        ran = clock.run(
            clock.files_of(query, n),
            query.aliases,
            lambda streams, _: query.join(streams, make_model(units)),
            measured=(n, EPOCHS),
        )
    found = spark.with_input(ran.epochs)[:n]
    n_measured = len(found) - ran.since
    row = {
        "cpu_s": ran.cpu_seconds / n_measured,
        "epoch_s": median(epoch.ms for epoch in found[ran.since :]) / 1e3,
        "load_before": ran.load_before,
        "is_correct": sum(epoch.results for epoch in found) == query.expected,
        **predict(ran, executors, units, size),
    }
    announce(
        f"{turn}: {row['cpu_s']:.2f} CPU s, predicted {row['predicted_cpu_s']:.2f};"
        f" {row['epoch_s']:.2f} s, predicted {row['predicted_s']:.2f}; load before {row['load_before']:.1f}"
    )
    return row


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    rows: list[Row] = []
    for size in (asked.epoch,) if asked.epoch else SIZES:
        query = make_query(size, EPOCHS + WARMUP, asked.seed)

        def measure(name: str, turn: str, query: Query = query, size: int = size) -> Row:
            return run_once(query, int(name), size, announce, f"{turn} executors, {size:,} tuples")

        runs = measure_in_turn([str(n) for n in EXECUTORS], asked.repeat, measure)
        rows += [summarize(int(name), size, found) for name, found in runs.items()]
    head = (
        f"The cost model beside runs on executors of one core: {EPOCHS} epochs, medians of {asked.repeat},"
        f" seed {asked.seed}. The executors share {os.cpu_count()} cores."
    )
    return publish_table(head, SHOWN, rows, asked)


def summarize(executors: int, size: int, runs: list[Row]) -> Row:
    """Compute the medians of the runs of a setting, and how far the predictions are off."""
    row = find_medians(runs)
    cpu_error = row["predicted_cpu_s"] / row["cpu_s"] - 1
    return {
        "executors": executors,
        "units": max(2, executors),
        "size": size,
        **row,
        "cpu_error": f"{cpu_error:+.0%}",
        "epoch_error": f"{row['predicted_s'] / row['epoch_s'] - 1:+.0%}",
        "is_within": abs(cpu_error) <= TARGET,
        "is_correct": all(run["is_correct"] for run in runs),
    }
