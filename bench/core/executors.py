"""The cost model beside runs on executors: ``python -m bench executors``.

    { (l, r) : |l.v - r.v| <= 32 } in a window of four epochs

A join runs on 1, 2 and 4 executors of one core each, with as many units as executors and at least two. The
same setting goes into the simulator, with the measured sizes of tuples. An epoch costs

    CPU seconds    units * (use of a core) * seconds of an epoch + seconds of the driver
    seconds        units * (use of a core) * seconds of an epoch / cores + seconds of the driver

and ``cores`` are those that the machine has for the executors. The CPU time is that of all processes, without
the compilers of the JVMs (``bench.core.cpu_times``). Epochs are measured after a warm-up. CPU time is
compared, because it depends less on other work of the machine than the seconds of an epoch. The target is
20 %. A miss is shown, and does not change the exit code, which is 1 if a count is wrong.
"""

import argparse
import contextlib
import os
from collections.abc import Callable
from statistics import median

from bench.core import spark
from bench.core.clock import Ran
from bench.core.floor import REACH, VALUES, WINDOW_EPOCHS, make_query
from bench.core.internals import Cluster, Setting, compute_core_parts, compute_driver_s
from bench.core.publishing import publish_table
from bench.core.query import Query
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.core.warm_clock import WarmClock
from thetastream.models import Biclique

EXECUTORS, SIZES = (1, 2, 4), (20_000, 100_000)
"""Numbers of executors, and of tuples of a stream in an epoch."""
EPOCHS, WARMUP, SPARE = 10, 18, 32
"""Measured epochs, the least number before them, and further ones for ``--warmup-seconds``."""
TARGET = 0.2
PARTNERS = (2 * REACH + 1) / VALUES
"""The share of the stored tuples that are partners of a tuple."""
SHOWN = (
    "executors; units; size|tuples of a stream; driver_s|driver, CPU seconds; predicted_driver_s|predicted;"
    " executors_s|executors, CPU seconds; predicted_executors_s|predicted; cpu_s|all;"
    " predicted_cpu_s|predicted; cpu_error|off by; compiling_s|compilers; epoch_s|seconds;"
    " predicted_s|predicted; load_before|load before; is_within|CPU within 20 %; is_correct|count is correct"
)


def predict(shown: Row, executors: int, units: int, size: int) -> Row:
    """Predict the costs of an epoch from the sizes of tuples that a run has shown."""
    cores = min(executors, os.cpu_count() or 1)
    partners = WINDOW_EPOCHS * size * PARTNERS
    setting = Setting(
        window_s=WINDOW_EPOCHS,
        stored_bytes=shown["stored_bytes"],
        sent_bytes=shown["sent_bytes"],
        candidates=partners,
        results=partners,
    )
    # An epoch brings the tuples of one second. Its length is found here, and need not be one second. The
    # file of each stream is read by one task.
    cluster = Cluster(epoch_s=1.0, cores_per_machine=units // executors, router_tasks=1)
    parts = compute_core_parts(make_model(units), setting, cluster, 2.0 * size)
    core_s, driver_s = units * sum(parts.values()), compute_driver_s(units, cluster)
    return {
        "predicted_driver_s": driver_s,
        "predicted_executors_s": core_s,
        "predicted_cpu_s": core_s + driver_s,
        "predicted_s": core_s / cores + driver_s,
        **{f"predicted_{part.name}_s": units * share for part, share in parts.items()},
    }


def make_model(units: int) -> Biclique:
    """Make the model with half of the units on each side."""
    return Biclique((units // 2, units // 2))


def describe_run(ran: Ran, query: Query, n: int) -> Row:
    """Describe the measured epochs of a run: their CPU time, the sizes of tuples, and the counts."""
    found = spark.with_input(ran.epochs)[: ran.since + EPOCHS]
    measured = found[ran.since :]
    cpu, last = ran.cpu.divide(len(measured)), ran.counters[-1]
    return {
        "driver_s": cpu.driver_s,
        "executors_s": cpu.executors_s,
        "cpu_s": cpu.warm_s,
        "compiling_s": cpu.compiling_s,
        "ended_s": cpu.ended_s,
        "epoch_s": median(epoch.ms for epoch in measured) / 1e3,
        "warmup_epochs": ran.since,
        "results": sum(epoch.results for epoch in measured) / len(measured),
        "stored_bytes": last["state_bytes"] / last["held"],
        "sent_bytes": last["received_bytes"] / last["received"],
        "load_before": ran.load_before,
        "is_correct": sum(epoch.results for epoch in found) == query.first(len(found), n).expected,
    }


def run_once(
    executors: int, size: int, asked: argparse.Namespace, announce: Callable[[str], None], turn: str
) -> Row:
    """Run a join on executors that are started for it."""
    units, n = max(2, executors), EPOCHS + WARMUP + SPARE
    query = make_query(size, n, asked.seed)
    with contextlib.closing(WarmClock(executors, units)) as clock:
        ran = clock.run(
            clock.files_of(query, n),
            query.aliases,
            lambda streams, _: query.join(streams, make_model(units)),
            measured=(n, EPOCHS),
            warmup=WARMUP,
            warmup_seconds=asked.warmup_seconds,
        )
    row = describe_run(ran, query, n)
    row |= predict(row, executors, units, size)
    announce(
        f"{turn}: {row['cpu_s']:.2f} CPU s, predicted {row['predicted_cpu_s']:.2f};"
        f" {row['epoch_s']:.2f} s, predicted {row['predicted_s']:.2f}; load before {row['load_before']:.1f}"
    )
    return row


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    rows: list[Row] = []
    for size in (asked.epoch,) if asked.epoch else SIZES:

        def measure(name: str, turn: str, size: int = size) -> Row:
            return run_once(int(name), size, asked, announce, f"{turn} executors, {size:,} tuples")

        runs = measure_in_turn([str(n) for n in EXECUTORS], asked.repeat, measure)
        rows += [summarize(int(name), size, found) for name, found in runs.items()]
    head = (
        f"The cost model beside runs on executors of one core: {EPOCHS} epochs after {WARMUP} epochs and"
        f" {asked.warmup_seconds:g} s, medians of {asked.repeat}, seed {asked.seed}. The executors share"
        f" {os.cpu_count()} cores."
    )
    return publish_table(head, SHOWN, rows, asked)


def summarize(executors: int, size: int, runs: list[Row]) -> Row:
    """Compute the medians of the runs of a setting, and how far the prediction is off."""
    row = find_medians(runs)
    cpu_error = row["predicted_cpu_s"] / row["cpu_s"] - 1
    return {
        "executors": executors,
        "units": max(2, executors),
        "size": size,
        **row,
        "cpu_error": f"{cpu_error:+.0%}",
        "is_within": abs(cpu_error) <= TARGET,
        "is_correct": all(run["is_correct"] for run in runs),
    }
