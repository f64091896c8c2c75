"""DuckDB joins the whole input at once, which is the bound of a batch.

Parquet in, two threads, insertion order not kept. All columns of both sides go to a table in memory
(``CREATE TABLE AS``); those of the engine ``copy`` go to a Parquet file (``COPY TO``). The clock covers
reading, joining and writing, as it does for the streaming engines. The window is a condition like any other.

The input is one window of each stream (``windows`` option). That is DuckDB's best case: its plans for
handshake (hash join on the grid cell, as in the Spark form), stock (hash join on the symbol) and
inequality (IEJoin) all grow faster than linearly with the input's length, so that the rate over
eight windows is a small part of the rate over one; and one window has half the results per tuple of the
steady state.
"""

import tempfile
import time
from typing import Any

import duckdb
import pyarrow.parquet as pq

from bench.core.data import Shape, Task
from bench.core.engines import COPY
from bench.core.join_sql import write_join

THREADS = 2
MIN_SECONDS = 3.0
"""A join that takes less time is repeated, and the median counts."""


def select(shape: Shape, columns: str, files: tuple[list[str], list[str]], is_bucketed: bool = True) -> str:
    """Write the join of files of both streams as one SQL statement."""
    sources = [f"read_parquet([{', '.join(map(repr, side))}])" for side in files]
    cells = shape.cells if is_bucketed else ()
    return write_join(columns, shape.spec.aliases, sources, shape.spec.duckdb_on, shape.window_us, cells)


def all_columns(shape: Shape) -> str:
    names = [
        f"{alias}.{column} AS {alias}_{column}"
        for side, alias in enumerate(shape.spec.aliases)
        for column in pq.read_schema(shape.file(side, 0)).names
    ]
    return ", ".join(names)


def connect() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": THREADS, "preserve_insertion_order": False})


def run(task: Task) -> dict[str, Any]:
    """Measure one window (or ``windows`` of them) as a batch."""
    shape = task.shape
    epochs = min(shape.epochs, -(-shape.window * task.options.get("windows", 1) // shape.epoch))
    is_bucketed = bool(task.options.get("bucketed", True) and shape.cells)
    files = ([shape.file(0, e) for e in range(epochs)], [shape.file(1, e) for e in range(epochs)])
    join = select(shape, all_columns(shape), files, is_bucketed)
    connection = connect()
    times: list[float] = []
    cpu_times: list[float] = []
    results = 0
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        words, statement = "CREATE TABLE AS", f"CREATE OR REPLACE TABLE results AS {join}"
        if task.engine == COPY:
            words, statement = "COPY TO", f"COPY ({join}) TO '{folder}/results.parquet' (FORMAT parquet)"
        while not times or (sum(times) < MIN_SECONDS and len(times) < 5):
            start, cpu = time.perf_counter(), time.process_time()
            ((results,),) = connection.execute(statement).fetchall()
            times.append(time.perf_counter() - start)
            cpu_times.append(time.process_time() - cpu)
    seconds = sorted(times)[len(times) // 2]
    tuples = 2 * shape.epoch * epochs
    form = f"{words}, {THREADS} threads, files of each stream at once: {epochs}"
    return {
        "results": results,
        "input_epochs": epochs,
        "measured_seconds": seconds,
        "tuples_per_s": tuples / seconds,
        "cpu_us_per_tuple": 1e6 * sorted(cpu_times)[len(times) // 2] / tuples,
        "results_per_s": results / seconds,
        "results_per_tuple": results / tuples,
        "form": f"grid cells of {shape.cells[0].width}, {form}" if is_bucketed else form,
    }
