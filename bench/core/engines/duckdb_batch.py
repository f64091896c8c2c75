"""DuckDB joins the whole input at once, which is the bound of a batch.

Parquet in, an in-memory table of all columns of both sides out (``CREATE TABLE AS``), two threads,
insertion order not kept. The clock covers reading, joining and materialising, as it does for the
streaming engines. The window is a condition like any other.

The input is one window of each stream (``windows`` option). That is DuckDB's best case: its plans for
handshake (hash join on the grid cell, as in the Spark form), stock (hash join on the symbol) and
inequality (IEJoin) all grow faster than linearly with the input's length, so that the rate over
eight windows is a small part of the rate over one; and one window has half the results per tuple of the
steady state.
"""

import time
from typing import Any

import duckdb
import pyarrow.parquet as pq

from bench.core.data import Shape, Task
from bench.core.workloads import TICK_US

THREADS = 2
MIN_SECONDS = 3.0
"""A join that takes less time is repeated, and the median counts."""


def source(files: list[str]) -> str:
    """Write a Parquet scan, in which event time is a BIGINT of microseconds."""
    listed = ", ".join(f"'{file}'" for file in files)
    return f"(SELECT * REPLACE (epoch_us(ts) AS ts) FROM read_parquet([{listed}]))"


def cell_size(window: int) -> int:
    """Choose the side of a grid cell for handshake: about ten candidates per probe, and two copies at least.

    Of (20, 40, 80), 80 was fastest for a window of 131,072; of (10, 20), 20 for 2,097,152.

    >>> cell_size(131_072), cell_size(2_097_152)
    (67, 20)
    """
    return max(20, int((10 * 1e8 / window) ** 0.5) - 20)


def on_cells(left: str, right: str, cell: int) -> tuple[str, str]:
    """Write both handshake inputs with their grid cell. S has a copy for each cell that its box touches."""

    def floor(column: str, offset: int) -> str:
        return f"floor(({column}::DOUBLE + {offset}) / {cell})::INT"

    def span(column: str) -> str:
        return f"unnest(range({floor(column, -10)}, {floor(column, 10)} + 1))::INT"

    columns = f"(SELECT *, {span('a')} AS cell_x FROM {right})"
    return (
        f"(SELECT *, {floor('x', 0)} AS cell_x, {floor('y', 0)} AS cell_y FROM {left})",
        f"(SELECT *, {span('b')} AS cell_y FROM {columns})",
    )


def select(shape: Shape, columns: str, files: tuple[list[str], list[str]], is_bucketed: bool = False) -> str:
    """Write the join of files of both streams as one SQL statement."""
    spec = shape.spec
    left, right = spec.aliases
    width = (shape.window - 1) * TICK_US
    sources = [source(side) for side in files]
    condition = f"{spec.duckdb_on} AND {left}.ts BETWEEN {right}.ts - {width} AND {right}.ts + {width}"
    if is_bucketed:
        sources = list(on_cells(sources[0], sources[1], cell_size(shape.window)))
        condition += f" AND {left}.cell_x = {right}.cell_x AND {left}.cell_y = {right}.cell_y"
    return f"SELECT {columns} FROM {sources[0]} {left} JOIN {sources[1]} {right} ON {condition}"


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
    is_bucketed = task.options.get("bucketed", shape.workload == "handshake")
    files = ([shape.file(0, e) for e in range(epochs)], [shape.file(1, e) for e in range(epochs)])
    join = select(shape, all_columns(shape), files, is_bucketed)
    connection = connect()
    times: list[float] = []
    cpu_times: list[float] = []
    while not times or (sum(times) < MIN_SECONDS and len(times) < 5):
        connection.execute("DROP TABLE IF EXISTS results")
        start, cpu = time.perf_counter(), time.process_time()
        connection.execute(f"CREATE TABLE results AS {join}")
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu)
    ((results,),) = connection.execute("SELECT count(*) FROM results").fetchall()
    seconds = sorted(times)[len(times) // 2]
    tuples = 2 * shape.epoch * epochs
    form = f"CREATE TABLE AS, {THREADS} threads, files of each stream at once: {epochs}"
    return {
        "results": results,
        "input_epochs": epochs,
        "measured_seconds": seconds,
        "tuples_per_s": tuples / seconds,
        "cpu_us_per_tuple": 1e6 * sorted(cpu_times)[len(times) // 2] / tuples,
        "results_per_s": results / seconds,
        "results_per_tuple": results / tuples,
        "form": f"grid cells of {cell_size(shape.window)}, {form}" if is_bucketed else form,
    }
