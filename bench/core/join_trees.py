"""A pipeline of four streams by two trees of joins: ``python -m bench join-trees``.

    { (a, b, c, d) : a.k = b.k AND b.g = c.g AND c.k = d.k }  in a window of 10 seconds, 20 tuples/s a stream

``k`` has 1,000 values and ``g`` has 10, so few pairs satisfy the first conjunct or the last one, and many the
one between them. The first run has no statistics, so its tree is left-deep. It also warms up the JVM.
``th.statistics`` of this run gives the bushy tree (a JOIN b) JOIN (c JOIN d). Then both trees run in turn.
The CPU time is that of all processes. The exit code is 1 if a tree is not the expected one, or if its number
of results is not that of DuckDB.
"""

import argparse
import contextlib
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
from bench.core.cpu_times import measure_cpu
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn

ALIASES = "abcd"
ON = "a.k = b.k AND b.g = c.g AND c.k = d.k"
KEYS, GROUPS, WINDOW_S, RATE = 1_000, 10, 10, 20
EPOCH, EPOCHS = 300, 4
"""Tuples of each stream in an epoch, and the number of epochs."""
TREES = {"left-deep": "(((a JOIN b) JOIN c) JOIN d)", "bushy": "((a JOIN b) JOIN (c JOIN d))"}
SHOWN = (
    "tree; joined|rows into joins; candidates; results; cpu_s|CPU seconds;"
    " is_correct|tree and count are correct"
)


def draw(epoch: int, epochs: int, seed: int) -> dict[str, list[pa.Table]]:
    """Draw the tables of each stream, one for each epoch."""
    found, n = {}, epoch * epochs
    for number, alias in enumerate(ALIASES):
        random = np.random.default_rng([seed, number])
        ts = pa.array((np.arange(n) + RATE) * (1_000_000 // RATE), pa.timestamp("us", "UTC"))
        values = {name: random.integers(0, most, n) for name, most in (("k", KEYS), ("g", GROUPS))}
        table = pa.table({"id": np.arange(n), **values, "ts": ts})
        found[alias] = [table.slice(start, epoch) for start in range(0, n, epoch)]
    return found


def count_results(tables: dict[str, list[pa.Table]]) -> int:
    """Count the results with DuckDB."""
    import duckdb

    connection = duckdb.connect()
    for alias, parts in tables.items():
        connection.register(alias, pa.concat_tables(parts))
    times = ", ".join(f"epoch_us({alias}.ts)" for alias in tables)
    inside = f"greatest({times}) - least({times}) <= {WINDOW_S * 1_000_000}"
    query = f"SELECT count(*) FROM {', '.join(tables)} WHERE {ON} AND {inside}"
    ((n,),) = connection.execute(query).fetchall()
    return int(n)


def measure(
    session: SparkSession, files: Path, known: th.Statistics | None, expected: int
) -> tuple[Row, th.Statistics]:
    """Run the query once. Return its figures, and the statistics that it gives."""
    streams = spark.streams(session, files, ALIASES)
    plan = th.plan(streams, ON, f"{WINDOW_S} seconds", th.Biclique((1, 1)), statistics=known)
    tree = TREES["left-deep" if known is None else "bushy"]
    with tempfile.TemporaryDirectory(prefix="bench-trees-") as checkpoint:
        before = measure_cpu()
        running = spark.start(plan.dataframe(), checkpoint, [F.count(F.lit(1)).alias("rows")])
        running.awaitTermination()
        spent = measure_cpu().since(before)
    epochs, results = th.metrics(running), sum(epoch.results for epoch in spark.epochs(running))
    row = {
        "joined": sum(side["timely"] for epoch in epochs for side in epoch["streams"].values()),
        "candidates": sum(epoch["candidates"] for epoch in epochs),
        "results": results,
        "cpu_s": spent.warm_s + spent.compiling_s,
        "is_correct": results == expected and tree in plan.explain(),
    }
    return row, th.statistics(running)


def write(clock: Clock, tables: dict[str, list[pa.Table]]) -> Path:
    """Write the files of the streams."""
    streams: dict[str, Iterable[pa.Table]] = dict(tables)
    return clock.files("trees", lambda: streams)


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a tree or a count is wrong."""
    epoch, epochs = asked.epoch or EPOCH, asked.epochs or EPOCHS
    tables = draw(epoch, epochs, asked.seed)
    expected = count_results(tables)
    with contextlib.closing(Clock()) as clock:
        session, files = clock.session(), write(clock, tables)
        announce("measuring statistics")
        _, statistics = measure(session, files, None, expected)

        def run(name: str, turn: str) -> Row:
            row, _ = measure(session, files, statistics if name == "bushy" else None, expected)
            announce(f"{turn}: {row['joined']:,} rows into joins, {row['cpu_s']:.1f} CPU seconds")
            return row

        runs = measure_in_turn(TREES, asked.repeat, run)
    rows = [
        {"tree": name, **find_medians(found), "is_correct": all(row["is_correct"] for row in found)}
        for name, found in runs.items()
    ]
    head = (
        f"Four streams of {epoch * epochs:,} tuples in {epochs} epochs, windows of {WINDOW_S} seconds,"
        f" medians of {asked.repeat}, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
