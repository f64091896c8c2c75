"""Questions by key to kept results, beside DuckDB over the same files: ``python -m bench questions``.

Ten million results lie in a thousand snapshots. Each is asked for by the value of its key, which about ten
results have. Three questions have targets for the 99th percentile: the rows of the newest snapshot (20 ms),
and the rows of all snapshots from files, before and after ``compact`` (150 ms). They are asked of a
``ParquetStore`` and of a ``DeltaStore`` with the same results. DuckDB answers the same questions over the
plain files of each, and each answer must have as many rows as DuckDB's.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bench.core.publishing import publish_table
from bench.core.rows import Row
from thetastream.results.description import Description
from thetastream.results.question import query
from thetastream.results.staged import Origin
from thetastream.stores import DeltaStore, ParquetStore

SNAPSHOTS, ROWS, VALUES = 1000, 10_000, 1_000_000
"""Snapshots, results of a snapshot, and values of the key."""
QUESTIONS, QUICK_SHARE = 200, 50
"""Questions of each kind; ``--quick`` has a fiftieth of the snapshots and of the questions."""
SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("partner", pa.int64()),
        ("price", pa.float64()),
        ("result_time", pa.timestamp("us", "UTC")),
    ]
)
HELD = Description(SCHEMA, "result_time", ("key",))
START = datetime(2026, 1, 5, tzinfo=UTC)
SPAN = timedelta(seconds=1)
"""The time between two snapshots."""
SHOWN = (
    "kind|answers; store|files of; layout|files; question; p50_ms; p99_ms; first_ms|first (ms);"
    " is_correct|counts are DuckDB's"
)
Ask = Callable[[int], int]
"""Asks for a value of the key, and returns the number of rows."""


def draw_snapshot(number: int, seed: int) -> pa.RecordBatch:
    """Draw the results of one snapshot."""
    random = np.random.default_rng([seed, number])
    begin_us = int((START + number * SPAN).timestamp() * 1e6)
    times = begin_us + np.arange(ROWS) * int(SPAN.total_seconds() * 1e6) // ROWS
    arrays = [
        pa.array(random.integers(0, VALUES, ROWS)),
        pa.array(random.integers(0, 1 << 40, ROWS)),
        pa.array(random.uniform(1, 1000, ROWS)),
        pa.array(times).cast(SCHEMA.field("result_time").type),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def fill(store: ParquetStore, snapshots: int, seed: int) -> None:
    """Keep all results, one snapshot in each epoch."""
    store.describe(HELD)
    for number in range(snapshots):
        stage = store.open_stage(Origin("q", number, "0"), HELD)
        stage.add(draw_snapshot(number, seed))
        staged = stage.close()
        assert staged is not None
        store.commit("q", number, [staged])


def list_questions(store: ParquetStore, snapshots: int) -> Iterator[tuple[str, Ask]]:
    """List the questions, each as its words and the function that asks it."""
    newest = START + (snapshots - 1) * SPAN
    sql = "SELECT key, partner, price FROM results"
    yield "newest snapshot", lambda value: query(store, sql, since=newest, key={"key": value}).num_rows
    yield "all snapshots", lambda value: query(store, sql, key={"key": value}).num_rows


def list_plain_questions(files: list[str], snapshots: int) -> Iterator[tuple[str, Ask]]:
    """List the same questions to DuckDB over plain files, of which the last has the newest snapshot."""
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    connection.execute("SET TimeZone = 'UTC'")
    newest = (START + (snapshots - 1) * SPAN).isoformat()
    sql = "SELECT key, partner, price FROM read_parquet(?) WHERE key = ?"

    def ask(asked: list[str], condition: str = "") -> Ask:
        return lambda value: connection.sql(sql + condition, params=[asked, value]).to_arrow_table().num_rows

    yield "newest snapshot", ask(files[-1:], f" AND result_time >= TIMESTAMPTZ '{newest}'")
    yield "all snapshots", ask(files)


def measure(ask: Ask, values: list[int]) -> tuple[Row, list[int]]:
    """Ask for each value; return the times, and the number of rows of each answer."""
    spent_ms, counts = [], []
    for value in values:
        begin = time.perf_counter()
        counts.append(ask(value))
        spent_ms.append(1e3 * (time.perf_counter() - begin))
    # The first question opens files that all later ones know.
    p50, p99 = (float(np.percentile(spent_ms[1:], percentile)) for percentile in (50, 99))
    return {"p50_ms": p50, "p99_ms": p99, "first_ms": spent_ms[0]}, counts


def compare(
    store: ParquetStore, layout: str, asked: argparse.Namespace, announce: Callable[[str], None]
) -> Iterator[Row]:
    """Measure all questions to a store, and to DuckDB over its files."""
    snapshots = SNAPSHOTS // asked.share
    random = np.random.default_rng([asked.seed, SNAPSHOTS])
    values = random.integers(0, VALUES, QUESTIONS // asked.share).tolist()
    # Half of the values of the newest snapshot exist.
    values[::2] = draw_snapshot(snapshots - 1, asked.seed)["key"].to_pylist()[: len(values[::2])]
    ours, plain = list_questions(store, snapshots), list_plain_questions(store.files(), snapshots)
    for (question, ask), (_, ask_plain) in zip(ours, plain, strict=True):
        (found, counts), (by_duckdb, expected) = measure(ask, values), measure(ask_plain, values)
        name = type(store).__name__
        announce(f"{name}, {layout}, {question}: {found}, DuckDB {by_duckdb}")
        words = {"store": name, "question": question, "layout": layout}
        yield {"kind": "th.query", **words, **found, "is_correct": counts == expected}
        yield {"kind": "DuckDB over plain Parquet", **words, **by_duckdb, "is_correct": True}


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if an answer has another number of rows than DuckDB's."""
    asked.share = QUICK_SHARE if asked.quick else 1
    snapshots, rows = SNAPSHOTS // asked.share, []
    for make in (ParquetStore, DeltaStore):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            store = make(str(Path(folder) / "store"))
            fill(store, snapshots, asked.seed)
            rows += compare(store, "a file for each snapshot", asked, announce)
            store.compact()
            rows += compare(store, "compacted", asked, announce)
    head = (
        f"{snapshots * ROWS:,} results in {snapshots:,} snapshots, {QUESTIONS // asked.share}"
        f" questions by key of each kind, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
