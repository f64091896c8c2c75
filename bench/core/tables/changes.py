"""What a new version costs an epoch, and how long the first epoch of a query with a table takes."""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import thetastream as th
from bench.core import data, spark
from bench.core.rows import Row
from bench.core.tables.cases import Case, ask_duckdb
from bench.core.tables.streams import Input, measure, measure_floor, observe

VERSION_SHOWN = (
    "rows|rows of the table; staged_s|first version staged in s; epoch_ms|median epoch before (ms);"
    " longest_ms|longest epoch from the change on (ms); longer_s|longer by s; until_s|read after s; target;"
    " is_correct|answers are equal"
)
FIRST_SHOWN = (
    "query; first_ms|first epoch (ms); of_stateless|of the stateless query; target;"
    " is_correct|answers are equal"
)
EPOCH, BEFORE, AFTER = 100_000, 8, 6
"""Rows of an epoch, epochs before the table changes, and epochs that read the new version."""
PATIENCE_S = 180
SHIFT = 17
"""How far the ranges of the new version are moved."""


def measure_new_version(session: SparkSession, seed: int, n_rows: int = 1_000_000) -> Row:
    """Replace a table under a running query, whose input never ends. The program looks every second."""
    case = Case("a table that changes", n_rows)
    tables = [case.draw_table()]
    moved = pa.array(np.asarray(tables[0]["low"]) + SHIFT), pa.array(np.asarray(tables[0]["high"]) + SHIFT)
    tables.append(pa.table({"id": tables[0]["id"], "low": moved[0], "high": moved[1]}))
    with tempfile.TemporaryDirectory(prefix="bench-tables-") as name:
        folder = Path(name)
        for part in ("s", "t", "ready"):
            (folder / part).mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, folder / "ready" / f"t{number}.parquet")
        shutil.copy(folder / "ready" / "t0.parquet", folder / "t" / "t.parquet")
        batches: list[pa.Table] = []

        def feed() -> None:
            batch = case.draw_rows(EPOCH, seed + len(batches))
            data.write(batch, folder / "ready" / "s.parquet", len(batches))
            (folder / "ready" / "s.parquet").rename(folder / "s" / f"{len(batches):06d}.parquet")
            batches.append(batch)

        feed()
        stream = spark.streams(session, folder, "s")["s"]
        began = time.perf_counter()
        joined = th.join({"s": stream, "t": th.Table(folder / "t", every="1 second")}, case.on)
        staged_s = time.perf_counter() - began
        running = spark.start(
            joined, folder / "checkpoint", observe(case.checksum), processingTime="0 seconds"
        )
        changed_s, read_s, first_of_new = 0.0, 0.0, None
        end = time.monotonic() + PATIENCE_S
        while first_of_new is None or spark.count_done(running) < first_of_new + AFTER:
            if time.monotonic() > end or not running.isActive:
                raise RuntimeError(f"no epoch has read the new version: {running.exception()}")
            done = spark.count_done(running)
            if len(batches) < done + 3:
                feed()
            if not changed_s and done >= BEFORE:
                (folder / "ready" / "t1.parquet").rename(folder / "t" / "t.parquet")
                changed_s, changed_epoch = time.monotonic(), done
            if changed_s and first_of_new is None and len(versions := _read_versions(running)) > 1:
                first_of_new, read_s = versions[2], time.monotonic() - changed_s
            time.sleep(0.02)
        running.stop()
        epochs = spark.with_input(spark.epochs(running))
        read = {one["epoch"]: one["version"] for one in th.versions(running)}
    expected = [
        ask_duckdb(case.sql, tables[read[epoch.number] - 1], [batches[epoch.number]])[0] for epoch in epochs
    ]
    usual = float(np.median([epoch.ms for epoch in epochs if 2 <= epoch.number < changed_epoch]))
    longest = max(epoch.ms for epoch in epochs if epoch.number >= changed_epoch)
    return {
        "rows": n_rows,
        "staged_s": staged_s,
        "epoch_ms": usual,
        "longest_ms": longest,
        "longer_s": (longest - usual) / 1000,
        "until_s": read_s,
        "target": "longer by 1 s",
        "is_correct": all(
            (epoch.results, epoch.observed["checksum"]) == one.bag
            for epoch, one in zip(epochs, expected, strict=True)
        ),
    }


def _read_versions(running: object) -> dict[int, int]:
    """Return the first epoch that has read each version."""
    first: dict[int, int] = {}
    for one in th.versions(running):
        first.setdefault(one["version"], one["epoch"])
    return first


def measure_first_epochs(session: SparkSession, case: Case, given: Input, repeat: int) -> list[Row]:
    """Measure the first epoch of a query with a table, and of a stateless query of Spark, in turn."""
    times: dict[str, list[float]] = {"with a table": [], "stateless": []}
    is_correct = True
    for _ in range(repeat):
        found = measure(session, case, given, None)
        is_correct &= (found["results"], found["checksum"]) == given.expected
        times["with a table"].append(found["first_ms"])
        times["stateless"].append(measure_floor(session, given.files)["first_ms"])
    medians = {query: float(np.median(found)) for query, found in times.items()}
    return [
        {
            "query": query,
            "first_ms": median,
            "of_stateless": median / medians["stateless"],
            "target": "1.2" if query == "with a table" else None,
            "is_correct": is_correct,
        }
        for query, median in medians.items()
    ]
