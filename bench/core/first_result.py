"""The first results of a new session, beside Spark's own join: ``python -m bench first-result``.

Each run is a new process: it starts a local session, writes two small Parquet folders, and joins them as
streams twice. Spark's own join needs an equality, so the condition has one. Both engines write into Parquet
files, in sessions of ``th.local_session``, in turn. The targets are a first epoch of at most 8 s and of at
most 1.15 times that of Spark's own join, 12 s from ``local_session`` to the first results, and plans of 0.9 s
and 0.15 s. ``thetastream prepare`` makes an archive of classes that these sessions use, if it has been run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import thetastream as th
from bench.core.internals import locate_archive
from bench.core.machine import process_tree
from bench.core.publishing import publish_table
from bench.core.rows import Row, find_medians, measure_in_turn

ENGINES = "thetastream", "spark"
ROWS, KEYS, WINDOW_S = 20_000, 500, 5
CONDITION = "a.k = b.k AND a.x > b.x"
WINDOW = f"a.ts BETWEEN b.ts - INTERVAL {WINDOW_S} SECONDS AND b.ts + INTERVAL {WINDOW_S} SECONDS"
SHOWN = (
    "engine; total_s|from local_session to results, s; session_s|session, s; plan_s|first plan, s;"
    " epoch_s|first epoch, s; cpu_s|CPU, s; second_plan_s|second plan, s; second_epoch_s|its epoch, s;"
    " to_spark|first epoch / Spark's; is_correct|count is correct"
)


def join(streams: dict[str, DataFrame], engine: str) -> DataFrame:
    """Join two streams by an engine."""
    if engine == "thetastream":
        joined = th.join(streams, on=CONDITION, within=f"{WINDOW_S} seconds")
    else:
        left, right = (stream.alias(alias) for alias, stream in streams.items())
        joined = left.join(right, F.expr(f"{CONDITION} AND {WINDOW}"))
    return joined.select("a.id", F.expr("b.id AS other"))


def run(engine: str, folder: Path) -> Row:
    """Measure one session; return its figures."""
    began = time.monotonic()
    spark = th.local_session(2)
    row: Row = {"session_s": time.monotonic() - began}
    drawn = f"abs(xxhash64(id, 1)) % {KEYS} AS k"
    when = "timestamp_seconds(1800000000 + id / 1000) AS ts"
    rows = spark.range(ROWS).selectExpr("id", drawn, "id / 3 AS x", when)
    inputs = time.monotonic()
    rows.repartition(2).write.parquet(f"{folder}/rows")
    inputs = time.monotonic() - inputs
    for name in ("", "second_"):
        row |= {f"{name}{part}": value for part, value in _measure_query(spark, engine, folder, name).items()}
        if not name:
            row["total_s"] = time.monotonic() - began - inputs
            times = [process.cpu_times() for process in process_tree()]
            row["cpu_s"] = sum(one.user + one.system for one in times)
    pairs = rows.alias("a").join(rows.alias("b"), F.expr(f"{CONDITION} AND {WINDOW}")).count()
    found = {spark.read.parquet(f"{folder}/{name}found").count() for name in ("", "second_")}
    return row | {"is_correct": found == {pairs} and pairs > 0}


def _measure_query(spark: SparkSession, engine: str, folder: Path, name: str) -> Row:
    """Measure the plan of a query, and its first epoch from ``start()`` to its commit."""
    reader = spark.readStream.schema("id LONG, k LONG, x DOUBLE, ts TIMESTAMP")
    streams = {alias: reader.parquet(f"{folder}/rows").withWatermark("ts", "2 seconds") for alias in "ab"}
    began = time.monotonic()
    sink = join(streams, engine).writeStream.format("parquet").option("path", f"{folder}/{name}found")
    sink = sink.option("checkpointLocation", f"{folder}/{name}checkpoint")
    plan_s = time.monotonic() - began
    query = sink.start()
    commit = folder / f"{name}checkpoint" / "commits" / "0"
    while not commit.exists() and query.isActive:
        time.sleep(0.01)
    epoch_s = time.monotonic() - began - plan_s
    query.processAllAvailable()
    query.stop()
    return {"plan_s": plan_s, "epoch_s": epoch_s}


def measure(engine: str, announce: Callable[[str], None]) -> Row:
    """Run one session in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.core.first_result", engine, folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    row: Row = json.loads(done.stdout.splitlines()[-1])
    announce(f"{engine}: {row['total_s']:.1f} s, first epoch {row['epoch_s']:.1f} s")
    return row


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    runs = measure_in_turn(ENGINES, asked.repeat, lambda engine, turn: measure(engine, announce))
    medians = {engine: find_medians(found) for engine, found in runs.items()}
    rows = [
        {
            **median,
            "engine": engine,
            "to_spark": median["epoch_s"] / medians["spark"]["epoch_s"],
            "is_correct": all(one["is_correct"] for one in runs[engine]),
        }
        for engine, median in medians.items()
    ]
    archive = "an archive of classes" if locate_archive().file.exists() else "no archive of classes"
    head = f"New sessions with {archive}, 2 x {ROWS:,} rows, medians of {asked.repeat}."
    return publish_table(head, SHOWN, rows, asked)


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], Path(sys.argv[2]))))
