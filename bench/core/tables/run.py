"""Runs ``python -m bench tables``: a stream beside tables, tables that change, and two batches.

Each case of a stream runs by an index of the table and by Spark's own join, in turn, in one session. The
first epochs of a query are not measured. DuckDB holds the table, and joins the rows of each epoch on one
thread. The number of results and a checksum must be those of DuckDB. Spark's own join compares each row with
the whole table, so its epochs have fewer rows, and it leaves out the largest tables. The CPU time is that of
all processes, without the compilers of the JVM. The exit code is 1 if an answer is wrong.
"""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.core.clock import Clock
from bench.core.columns import columns, write_table
from bench.core.machine import describe
from bench.core.page import describe_machine
from bench.core.publishing import publish
from bench.core.rows import Row, find_medians
from bench.core.tables import batches, changes, streams
from bench.core.tables.cases import Case

TITLES = {
    "streams": ("A stream beside a table", streams.SHOWN),
    "versions": ("A new version under a running query", changes.VERSION_SHOWN),
    "first": ("The first epoch in a warm session", changes.FIRST_SHOWN),
    "batches": ("Two batch DataFrames", batches.SHOWN),
}


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if an answer is wrong."""
    n, epochs, repeat = asked.epoch or streams.EPOCH, asked.epochs or streams.EPOCHS, asked.repeat
    found: dict[str, list[Row]] = {name: [] for name in TITLES}
    loads = []

    def note(name: str, rows: list[Row]) -> None:
        loads.append(os.getloadavg()[0])
        found[name] += rows
        for row in rows:
            announce(", ".join(f"{key} {value}" for key, value in row.items()))

    with contextlib.closing(Clock()) as clock:
        announce("warming up")
        for how in ("inner", "left"):
            streams.run_case(clock, Case(f"warm-up, {how}", 1_000, how), n, epochs, 1, asked.seed)
        for case in streams.CASES:
            note("streams", streams.run_case(clock, case, n, epochs, repeat, asked.seed))
        session, inner = clock.session(), streams.CASES[0]
        given = streams.write_input(clock, inner, n, epochs, asked.seed)
        floor = find_medians([streams.measure_floor(session, given.files) for _ in range(repeat)])
        note("streams", [{"case": "no join", "way": "Spark", **floor, "is_correct": True}])
        streams.compare(found["streams"])
        note("versions", [changes.measure_new_version(session, asked.seed) for _ in range(repeat)])
        note("first", changes.measure_first_epochs(session, inner, given, repeat))
        with tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
            for pair in batches.CASES:
                note("batches", batches.run_case(session, pair, Path(folder), repeat, asked.seed))
    machine = describe()
    head = (
        f"Medians of {repeat}, epochs of {n:,} rows, seed {asked.seed}, load average {min(loads):.1f} to"
        f" {max(loads):.1f}. DuckDB joins the same rows on one thread, without reading files or writing rows."
    )
    lines = [head, f"{describe_machine(machine)}.\n"]
    for name, (title, shown) in TITLES.items():
        lines += [f"## {title}\n", *write_table(columns(shown), found[name]), ""]
    publish("\n".join(lines), {**found, "loads": loads, "machine": machine}, asked)
    return 0 if all(row["is_correct"] for rows in found.values() for row in rows) else 1
