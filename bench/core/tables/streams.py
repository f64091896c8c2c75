"""A stream beside a table of ranges: by an index of the table, and by Spark's own join."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread

import psutil
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
from bench.core.cpu_times import measure_cpu
from bench.core.machine import mapped_bytes, process_tree, resident_bytes
from bench.core.rows import Row, find_medians
from bench.core.tables.cases import Answer, Case, ask_duckdb

CASES = (
    Case("10,000 ranges, inner", target="300,000 rows/s; 70 x Spark; 0.2 of DuckDB"),
    Case("left", how="left"),
    Case("semi", how="semi"),
    Case("anti", how="anti"),
    Case("one range covers all", has_long_range=True),
    Case("1,000,000 ranges", 1_000_000, has_loop=False),
    Case("10,000,000 ranges", 10_000_000, has_loop=False, target="staged in 15 s; 0.5 of 1,000,000; 300 MB"),
    Case("as-of, 1,000,000 rows", 1_000_000, "as-of", has_loop=False, target="1.5 of DuckDB"),
    Case(
        "as-of, 1,000,000 rows of 10,000 keys",
        1_000_000,
        "as-of",
        10_000,
        has_loop=False,
        target="1.5 of DuckDB",
    ),
)
EPOCH, EPOCHS, SLOWER = 100_000, 9, 32
"""Rows of an epoch by an index, the number of epochs, and how many times fewer rows Spark's own join gets."""
WARM = 2
"""The first epochs of a query, which are not measured."""
SAMPLE_S = 1.0
SHOWN = (
    "case; way|joined by; rows_per_s|rows/s; cpu_us|CPU µs a row; duckdb_rows_per_s|DuckDB, rows/s;"
    " duckdb_cpu_us|DuckDB, CPU µs a row; of_duckdb|of DuckDB; of_loop|of Spark's loop; of_inner|of inner;"
    " staged_s|staged in s; worker_mb|memory of a worker, MB; mapped_mb|of it in files, MB; target;"
    " is_correct|answers are equal"
)


@dataclass
class Peak:
    """The largest memory of a Python worker, as its PSS, and the part of it that lies in mapped files."""

    nbytes: int = 0
    mapped: int = 0
    _ended: Event = field(default_factory=Event)

    def watch(self) -> None:
        """Sample until the end."""
        while not self._ended.wait(SAMPLE_S):
            for member in process_tree()[1:]:
                with suppress(psutil.Error):
                    nbytes = 0 if member.name() == "java" else resident_bytes(member)
                    if nbytes > self.nbytes:
                        self.nbytes, self.mapped = nbytes, mapped_bytes(member)


@contextmanager
def watch_workers() -> Iterator[Peak]:
    """Watch the memory of Python workers until the block ends."""
    peak = Peak()
    thread = Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak._ended.set()
        thread.join()


@dataclass(frozen=True)
class Input:
    """The files of a stream and of a table, and the answer to each epoch."""

    files: Path
    table: Path
    answers: list[Answer]

    @property
    def expected(self) -> tuple[int, int]:
        """The number of results of all epochs, and their checksum."""
        return sum(one.results for one in self.answers), sum(one.checksum for one in self.answers)


def observe(checksum: str) -> list[Column]:
    """Return what is observed of the results of an epoch."""
    return [F.count(F.lit(1)).alias("rows"), F.expr(checksum).alias("checksum")]


def measure(session: SparkSession, case: Case, given: Input, model: str | None) -> Row:
    """Run the query once, and return the figures of its epochs without the first ones."""
    stream = spark.streams(session, given.files, "s")["s"]
    inputs: dict[str, DataFrame] = {"s": stream, "t": session.read.parquet(str(given.table))}
    how = th.Nearest(1, by="s.x - t.low") if case.is_as_of else case.how
    before_s = time.perf_counter()
    joined = th.join(inputs, case.on, model=model, how=how)
    staged_s = time.perf_counter() - before_s
    return {"staged_s": staged_s, **run_query(joined, case.checksum)}


def measure_floor(session: SparkSession, files: Path) -> Row:
    """Run a query without a join over the rows of a stream, which no query with a join can outrun."""
    stream = spark.streams(session, files, "s")["s"].where("x % 10 > 0")
    return run_query(stream, "CAST(sum(id) AS BIGINT)")


def run_query(results: DataFrame, checksum: str) -> Row:
    """Run a query over all files of its stream."""
    before = measure_cpu()
    with tempfile.TemporaryDirectory(prefix="bench-tables-") as checkpoint, watch_workers() as peak:
        running = spark.start(results, checkpoint, observe(checksum))
        running.awaitTermination()
    spent = measure_cpu().since(before)
    epochs = spark.with_input(spark.epochs(running))
    return {
        "rows_per_s": spark.steady(epochs, WARM)["tuples_per_s"],
        "cpu_us": 1e6 * spent.warm_s / sum(epoch.tuples for epoch in epochs),
        "worker_mb": peak.nbytes / 1e6,
        "mapped_mb": peak.mapped / 1e6,
        "first_ms": epochs[0].ms,
        "results": sum(epoch.results for epoch in epochs),
        "checksum": sum(epoch.observed["checksum"] for epoch in epochs),
    }


def write_input(clock: Clock, case: Case, n: int, epochs: int, seed: int) -> Input:
    """Write the files of a case, and ask DuckDB for its answers."""
    table, rows = case.draw_table(), case.draw_rows(n * epochs, seed)
    parts = [rows.slice(start, n) for start in range(0, n * epochs, n)]
    files = clock.files(f"{case.name}-{n}", partial(dict, s=parts))
    path = files / "t.parquet"
    if not path.exists():
        pq.write_table(table, path)
    return Input(files, path, ask_duckdb(case.sql, table, parts))


def run_case(clock: Clock, case: Case, n: int, epochs: int, repeat: int, seed: int) -> list[Row]:
    """Measure a case by an index and by Spark's own join, in turn."""
    ways = {
        "an index": (n, None),
        **({"Spark's loop": (max(1, n // SLOWER), "spark")} if case.has_loop else {}),
    }
    given = {way: write_input(clock, case, size, epochs, seed) for way, (size, _) in ways.items()}
    runs: dict[str, list[Row]] = {way: [] for way in ways}
    for turn in range(repeat):
        for way in list(ways)[:: -1 if turn % 2 else 1]:
            runs[way].append(measure(clock.session(), case, given[way], ways[way][1]))
    return [
        {
            "case": case.name,
            "way": way,
            **find_medians(found),
            **_describe_duckdb(given[way].answers, ways[way][0]),
            "target": case.target if way == "an index" else None,
            "is_correct": all((row["results"], row["checksum"]) == given[way].expected for row in found),
        }
        for way, found in runs.items()
    ]


def _describe_duckdb(answers: Sequence[Answer], n: int) -> Row:
    """Return the median rate of DuckDB over epochs but the first, and its CPU time."""
    steady = [{"s": one.seconds, "cpu_s": one.cpu_s} for one in answers[1:] or answers]
    median = find_medians(steady)
    return {"duckdb_rows_per_s": n / median["s"], "duckdb_cpu_us": 1e6 * median["cpu_s"] / n}


def compare(rows: list[Row]) -> None:
    """Add how many times the rate of a row is that of DuckDB, of Spark's own join, and of the first row."""
    inner, loops = rows[0]["rows_per_s"], {row["case"]: row for row in rows if row["way"] != "an index"}
    for row in rows:
        if "duckdb_rows_per_s" in row:
            row["of_duckdb"] = row["rows_per_s"] / row["duckdb_rows_per_s"]
        if row["way"] == "an index":
            row["of_inner"] = row["rows_per_s"] / inner
            if row["case"] in loops:
                row["of_loop"] = row["rows_per_s"] / loops[row["case"]]["rows_per_s"]
