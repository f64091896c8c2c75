"""Two batch DataFrames joined by an index of one of them, beside DuckDB and Spark's own join.

two inequalities    s.x < t.x AND s.y > t.y                              DuckDB: IEJoin
two bands           |s.x - t.x| <= 1500 AND |s.y - t.y| <= 1500
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import thetastream as th
from bench.core.cpu_times import measure_cpu
from bench.core.rows import Row, find_medians
from bench.core.tables.cases import Answer, ask_duckdb, checksum
from bench.core.tables.streams import observe

SHOWN = (
    "case; way|joined by; seconds|seconds; cpu_s|CPU s; results; of_duckdb|times as fast as DuckDB;"
    " of_spark|times as fast as Spark's own join; target; is_correct|answers are equal"
)
SPARK = "Spark's own join"
LESS = 16
"""Spark's own join gets so many times fewer rows of ``s``, and its time is multiplied by this number: it
compares each pair of rows."""


@dataclass(frozen=True)
class Batches:
    """A condition, and the rows of two inputs."""

    name: str
    on: str
    n: int
    target: str
    is_diagonal: bool = False
    """Whether y grows with x, so that few pairs satisfy both inequalities."""

    def draw(self, seed: int) -> pa.Table:
        """Draw the rows of an input."""
        random, most = np.random.default_rng(seed), 1_000_000
        x = random.integers(0, most, self.n)
        y = random.integers(0, most // 2_500 if self.is_diagonal else most, self.n)
        return pa.table({"id": np.arange(self.n), "x": x, "y": x + y if self.is_diagonal else y})


CASES = (
    Batches(
        "two inequalities, 50,000 x 50,000",
        "s.x < t.x AND s.y > t.y",
        50_000,
        "0.25 of DuckDB",
        is_diagonal=True,
    ),
    Batches(
        "two bands, 100,000 x 100,000",
        "s.x BETWEEN t.x - 1500 AND t.x + 1500 AND s.y BETWEEN t.y - 1500 AND t.y + 1500",
        100_000,
        "2.5 s",
    ),
)


def measure(session: SparkSession, case: Batches, folder: Path, model: str | None) -> Row:
    """Join the files of two inputs once: plan, stage, join, and count the results."""
    inputs = {alias: session.read.parquet(str(folder / f"{alias}.parquet")) for alias in "st"}
    before, began = measure_cpu(), time.perf_counter()
    counted = th.join(inputs, case.on, model=model).agg(*observe(checksum(has_partner=True))).collect()[0]
    seconds = time.perf_counter() - began
    cpu_s = measure_cpu().since(before).warm_s
    return {"seconds": seconds, "cpu_s": cpu_s, "results": counted["rows"], "checksum": counted["checksum"]}


def run_case(session: SparkSession, case: Batches, folder: Path, repeat: int, seed: int) -> list[Row]:
    """Measure a case by an index, by DuckDB and by Spark's own join."""
    left, right = case.draw(seed), case.draw(seed + 1)
    few = left.slice(0, len(left) // LESS)
    sql = f"SELECT count(*), {checksum(has_partner=True)} FROM s JOIN t ON {case.on}"
    ways: dict[str, tuple[pa.Table, str | None]] = {"an index": (left, None), SPARK: (few, "spark")}
    rows = []
    for way, (given, model) in ways.items():
        where = folder / f"{case.n}-{len(given)}"
        where.mkdir()
        pq.write_table(given, where / "s.parquet")
        pq.write_table(right, where / "t.parquet")
        (expected,) = ask_duckdb(sql, right, [given])
        n = repeat if model is None else 1
        runs = [measure(session, case, where, model) for _ in range(n + 1)][1:]
        rows.append(
            {
                "case": case.name,
                "way": way,
                **find_medians(runs),
                "target": case.target if model is None else None,
                "is_correct": all((one["results"], one["checksum"]) == expected.bag for one in runs),
            }
        )
        if model is None:
            answers = [expected] if expected.seconds > 10 else ask_duckdb(sql, right, [given] * repeat)
            rows.append(_describe_duckdb(case, answers))
        else:
            rows[-1]["seconds"] *= len(left) / len(given)
            rows[-1]["cpu_s"] *= len(left) / len(given)
    index, duckdb, loop = rows
    index["of_duckdb"] = duckdb["seconds"] / index["seconds"]
    index["of_spark"] = loop["seconds"] / index["seconds"]
    return rows


def _describe_duckdb(case: Batches, answers: list[Answer]) -> Row:
    median = find_medians([{"seconds": one.seconds, "cpu_s": one.cpu_s} for one in answers])
    return {
        "case": case.name,
        "way": "DuckDB",
        **median,
        "results": answers[0].results,
        "is_correct": len({one.bag for one in answers}) == 1,
    }
