"""Pathway's interval join, over CSV files that it reads at once. Writing the CSV files does not count."""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import pathway as pw
import pyarrow.csv
import pyarrow.parquet as pq

from bench.peers.join import Figures, Join, main

TYPES = {"int32": int, "int64": int, "float": float, "double": float, "bool": bool, "string": str}
EQUALITIES: dict[str, Any] = {
    "equi": lambda left, right: [left.k == right.k],
    "stock": lambda left, right: [left.symbol == right.symbol],
}
FILTERS: dict[str, Any] = {
    "handshake": lambda r: (
        (r.r_x >= r.s_a - 10) & (r.r_x <= r.s_a + 10) & (r.r_y >= r.s_b - 10) & (r.r_y <= r.s_b + 10)
    ),
    "stock": lambda r: r.b_price >= r.a_price,
}


def run(join: Join) -> Figures:
    """Join all files, count the results, and send their columns to a sink that drops them."""
    joined = write_join(join)
    found: list[int] = []
    pw.io.null.write(joined)
    pw.io.subscribe(
        joined.reduce(n=pw.reducers.count()),
        on_change=lambda key, row, time, is_addition: found.append(row["n"]),
    )
    start = time.perf_counter()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - start
    form = f"{join.form}, CSV at once, threads: {os.environ['PATHWAY_THREADS']}"
    return {"seconds": seconds, "results": max(found), "form": form}


def write_join(join: Join) -> Any:
    """Build the join with all columns of both streams."""
    left, right = (read(join, alias) for alias in join.aliases)
    equalities = EQUALITIES.get(join.workload, lambda left, right: [])
    for number, cell in enumerate(join.cells):
        left, right = add_cells(left, right, cell, number)
    on = equalities(left, right) + [left[f"cell_{n}"] == right[f"cell_{n}"] for n in range(len(join.cells))]
    interval = pw.temporal.interval(-join.window_us, join.window_us)
    columns = {
        f"{alias}_{name}": stream[name]
        for stream, alias in ((left, join.aliases[0]), (right, join.aliases[1]))
        for name in schema_of(join, alias)
    }
    joined = left.interval_join(right, left.ts, right.ts, interval, *on).select(**columns)
    return joined.filter(FILTERS[join.workload](joined)) if join.workload in FILTERS else joined


def add_cells(left: Any, right: Any, cell: dict[str, Any], number: int) -> tuple[Any, Any]:
    """Give left tuples their cell, and copy right tuples to each cell that they reach."""
    name, width, reach = f"cell_{number}", int(cell["width"]), cell["reach"]
    left = left.with_columns(**{name: pw.cast(int, left[cell["left"]] // width)})
    ends = [pw.cast(int, (right[cell["right"]] + sign * reach) // width) for sign in (-1, 1)]
    reached = pw.apply_with_type(lambda low, high: tuple(range(low, high + 1)), tuple[int, ...], *ends)
    right = right.with_columns(**{name: reached})
    return left, right.flatten(right[name])


def read(join: Join, alias: str) -> Any:
    """Read a stream from CSV files, with its event time in microseconds."""
    folder = Path(tempfile.mkdtemp(dir=join.folder))
    for file in join.files_of(alias):
        table = pq.read_table(file)
        ts = table.schema.get_field_index("ts")
        pyarrow.csv.write_csv(
            table.set_column(ts, "ts", table["ts"].cast("int64")), folder / f"{Path(file).stem}.csv"
        )
    schema = pw.schema_from_types(**schema_of(join, alias))
    return pw.io.csv.read(str(folder), schema=schema, mode="static")


def schema_of(join: Join, alias: str) -> dict[str, type]:
    """Return the columns of a stream with their types."""
    return {name: TYPES.get(type_, int) for name, type_ in join.types_of(alias).items()}


if __name__ == "__main__":
    main(run)
