"""A stream beside a table of ranges: ``python -m bench tables``.

    { (s, t) : t.low <= s.x < t.high }        as-of: the row with the greatest t.low <= s.x

Each case runs by an index of the table and by Spark's own join, in turn, in one session. The first epoch of a
query is not measured. DuckDB joins the rows of the measured epochs on one thread, and says how many results
there are. Spark's own join compares each row with the whole table, so its epochs have fewer rows, and it
leaves out the largest tables. The CPU time is that of all processes. The exit code is 1 if a count is wrong.
"""

import argparse
import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
from bench.core.cpu_times import measure_cpu
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn

ON = "s.x >= t.low AND s.x < t.high"
STEP = 100
"""The distance of the lower ends of two ranges. A range is nine tenths of it."""
EPOCH, EPOCHS, SLOWER = 262_144, 5, 16
"""Rows of an epoch by an index, the number of epochs, and how many times fewer rows Spark's own join gets."""
AS_OF = "s.x >= t.low"
SQL = {
    "as-of": f"SELECT count(*) FROM s ASOF JOIN t ON {AS_OF}",
    "inner": "SELECT count(*) FROM s, t WHERE {on}",
    "left": "SELECT count(*) FROM s LEFT JOIN t ON {on}",
    "semi": "SELECT count(*) FROM s SEMI JOIN t ON {on}",
    "anti": "SELECT count(*) FROM s ANTI JOIN t ON {on}",
}
SHOWN = (
    "case; way|joined by; tuples_per_s|rows/s; duckdb|DuckDB, rows/s; cpu_us|CPU us a row;"
    " staged_s|staged in s; is_correct|count is correct"
)


@dataclass(frozen=True)
class Case:
    """A table, and the kind of join."""

    name: str
    n_ranges: int = 10_000
    how: str = "inner"
    has_long_range: bool = False
    is_too_large: bool = False
    """Whether Spark's own join would take hours."""

    def draw_table(self) -> pa.Table:
        """Draw the ranges."""
        low = np.arange(self.n_ranges, dtype=np.int64) * STEP
        high = low + STEP * 9 // 10
        if self.has_long_range:
            low, high = np.append(low, 0), np.append(high, self.n_ranges * STEP)
        return pa.table({"id": np.arange(len(low)), "low": low, "high": high})

    def draw_rows(self, n: int, seed: int) -> pa.Table:
        """Draw the rows of the stream."""
        x = np.random.default_rng(seed).integers(0, self.n_ranges * STEP, n)
        ts = pa.array(np.arange(n) * 1000, pa.timestamp("us", "UTC"))
        return pa.table({"id": np.arange(n), "x": x, "ts": ts})


CASES = (
    Case("10,000 ranges"),
    Case("10,000 ranges, left", how="left"),
    Case("10,000 ranges, semi", how="semi"),
    Case("10,000 ranges, anti", how="anti"),
    Case("10,000 ranges and a long one", has_long_range=True),
    Case("1,000,000 ranges", 1_000_000, is_too_large=True),
    Case("as-of, 1,000,000 rows", 1_000_000, "as-of", is_too_large=True),
)


def count_results(case: Case, table: pa.Table, rows: pa.Table) -> tuple[int, float]:
    """Count the results with DuckDB, on one thread; return the seconds too."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("s", rows)
    connection.register("t", table)
    before = time.perf_counter()
    ((n,),) = connection.execute(SQL[case.how].format(on=ON)).fetchall()
    return int(n), time.perf_counter() - before


def measure(session: SparkSession, files: Path, case: Case, table: DataFrame, model: str | None) -> Row:
    """Run the query once, and return the figures of all epochs but the first."""
    streams = spark.streams(session, files, "s")
    before_s = time.perf_counter()
    on, how = (AS_OF, th.Nearest(1, by="s.x - t.low")) if case.how == "as-of" else (ON, case.how)
    joined = th.join({"s": streams["s"], "t": table}, on, model=model, how=how)
    staged_s = time.perf_counter() - before_s
    with tempfile.TemporaryDirectory(prefix="bench-tables-") as checkpoint:
        before = measure_cpu()
        running = spark.start(joined, checkpoint, [F.count(F.lit(1)).alias("rows")])
        running.awaitTermination()
        spent = measure_cpu().since(before)
    epochs = spark.with_input(spark.epochs(running))
    rows = sum(epoch.tuples for epoch in epochs)
    figures = spark.steady(epochs, 1)
    return {
        "tuples_per_s": figures["tuples_per_s"],
        "cpu_us": 1e6 * spent.warm_s / rows,
        "staged_s": staged_s,
        "results": sum(epoch.results for epoch in epochs),
    }


def run_case(
    clock: Clock, case: Case, asked: argparse.Namespace, announce: Callable[[str], None]
) -> list[Row]:
    """Measure a case by an index and by Spark's own join, in turn."""
    session, table = clock.session(), case.draw_table()
    epoch, epochs = asked.epoch or EPOCH, asked.epochs or EPOCHS
    ways: dict[str, dict[str, Any]] = {}
    for way, n in (("an index", epoch), ("Spark", max(1, epoch // SLOWER))):
        if way == "Spark" and case.is_too_large:
            continue
        rows = case.draw_rows(n * epochs, asked.seed)
        parts = [rows.slice(start, n) for start in range(0, n * epochs, n)]
        expected, seconds = count_results(case, table, rows)
        files = clock.files(f"tables-{case.n_ranges}-{n}", partial(dict, s=parts))
        model = None if way == "an index" else "spark"
        ways[way] = {"files": files, "model": model, "expected": expected, "duckdb": n * epochs / seconds}
    frame = session.createDataFrame(table).localCheckpoint()

    def run(way: str, turn: str) -> Row:
        row = measure(session, ways[way]["files"], case, frame, ways[way]["model"])
        announce(f"{case.name}, {turn}: {row['tuples_per_s']:,.0f} rows/s")
        return row

    found = measure_in_turn(ways, asked.repeat, run)
    return [
        {
            "case": case.name,
            "way": way,
            **find_medians(runs),
            "duckdb": ways[way]["duckdb"],
            "is_correct": all(row["results"] == ways[way]["expected"] for row in runs),
        }
        for way, runs in found.items()
    ]


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    with contextlib.closing(Clock()) as clock:
        announce("warming up")
        warm = Case("warm-up", 1000)
        run_case(clock, warm, argparse.Namespace(**{**vars(asked), "repeat": 1, "epoch": 32_768}), announce)
        rows = [row for case in CASES for row in run_case(clock, case, asked, announce)]
    head = (
        f"A stream beside a table of ranges, medians of {asked.repeat}, seed {asked.seed}. DuckDB joins on"
        " one thread, in one batch, without reading or writing rows."
    )
    return publish_table(head, SHOWN, rows, asked)
