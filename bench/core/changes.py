"""Joins of rows that are updated and deleted: ``python -m bench changes``.

handshake   its join, beside the same join of rows that are only inserted. In each epoch, 5 % of the rows of
            the epoch before are deleted and 10 % are updated, so one tuple in five is no new row. Both joins
            get as many tuples per epoch. Target: 0.75 of the rate without changes.
churn       one unit over the full history, without Spark: 1 % of the rows are replaced in each of 1,000
            epochs. Target: at most 1.3 stored tuples for each row that is there.
upserts     units that keep the latest row of each key. Target: 250,000 rows/s.
"""

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.core import internals as inside
from bench.core import spark
from bench.core.clock import Clock, Ran
from bench.core.internals import Side
from bench.core.publishing import publish_table
from bench.core.query import Query, stamp
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.papers import inputs
from thetastream.models import Biclique

EPOCH, QUICK_EPOCH = 131_072, 32_768
"""Tuples of each stream in an epoch, and in the window of the handshake."""
EPOCHS, QUICK_EPOCHS, WARMUP = 8, 3, 4
"""Measured epochs, those of ``--quick``, and the epochs before them."""
DELETED, UPDATED = 0.05, 0.1
"""Shares of the rows of the epoch before."""
KEYS = 500_000
LIVE, CHURN_EPOCHS, REPLACED = 20_000, 1_000, 200
INSERTS, CHANGES, CHURN, UPSERTS = "handshake", "handshake, changes", "churn", "upserts"
TARGETS = {INSERTS: "", CHANGES: ">= 0.75", CHURN: "<= 1.3", UPSERTS: ">= 250,000/s"}
SHOWN = (
    "name|measured; tuples_per_s; epoch_ms_p50; cpu_us_per_tuple|CPU us a tuple;"
    " ratio|to the inserts, or stored tuples / rows; cpu_ratio|inserts / this, CPU; target;"
    " is_correct|count is correct"
)
NET = "coalesce(sum(CASE WHEN _change_type = 'insert' THEN 1 ELSE -1 END), 0)"
"""The number of inserts without that of deletes."""


def add_changes(table: pa.Table, epochs: int, n: int, seed: int) -> tuple[list[pa.Table], pa.Table]:
    """Delete and update rows of a table; return ``n`` tuples for each epoch, and the rows that are there.

    A row is changed in the epoch after its own, so that it is not late. An updated row has the event time of
    the old one, and the other columns of another row.
    """
    random = np.random.default_rng([seed, 5])
    n_changed = round(n / (1 + DELETED + 2 * UPDATED) * (DELETED + UPDATED))
    n_deleted = round(n_changed * DELETED / (DELETED + UPDATED))
    files, held, last = [], [], table.slice(0, 0)
    start = 0
    for _ in range(epochs):
        changed = random.choice(len(last), n_changed, replace=False) if len(last) else np.zeros(0, np.int64)
        old = last.take(changed)
        others = table.take(random.integers(0, len(table), len(old) - min(n_deleted, len(old))))
        new = others.set_column(
            others.schema.get_field_index("ts"), "ts", old["ts"].slice(len(old) - len(others))
        )
        kept = np.ones(len(last), dtype=np.bool_)
        kept[changed] = False
        held += [last.filter(pa.array(kept)), new]
        last = table.slice(start, n - len(old) - len(new))
        start += len(last)
        signs = [1] * (len(last) + len(new)) + [-1] * len(old)
        files.append(pa.concat_tables([last, new, old]).append_column("w", pa.array(signs, pa.int8())))
    return files, pa.concat_tables([*held, last])


def measure_join(
    clock: Clock, query: Query, files: tuple[list[pa.Table], list[pa.Table]], has_signs: bool
) -> Row:
    """Run the handshake over files, one for each epoch; ``query`` has the rows that are there in the end."""
    import thetastream as th

    epochs, n = len(files[0]), len(files[0][0])

    def join(streams: dict[str, DataFrame], _: str) -> DataFrame:
        if has_signs:
            streams = {alias: th.changes(stream, sign="w") for alias, stream in streams.items()}
        return query.join(streams, Biclique((1, 1)))  # type: ignore[no-any-return]

    folder = clock.files((query.name, has_signs), lambda: dict(zip(query.aliases, files, strict=True)))
    count = F.expr(NET if has_signs else "count(1)")
    ran = clock.run(folder, query.aliases, join, [count.alias("rows")], (epochs, epochs - WARMUP))
    return find_figures(ran, epochs, 2 * n, query.expected)


def find_figures(ran: Ran, epochs: int, n: int, expected: int) -> Row:
    """Find the figures of the measured epochs, each with ``n`` tuples."""
    found = spark.with_input(ran.epochs)[:epochs]
    return {
        **spark.steady(found, ran.since, n),
        "cpu_us_per_tuple": 1e6 * ran.cpu.living_s / (n * (len(found) - ran.since)),
        "is_correct": sum(epoch.results for epoch in found) == expected,
        "load_before": ran.load_before,
    }


def measure_upserts(clock: Clock, epochs: int, n: int, seed: int) -> Row:
    """Turn upserts into changes; all keys are kept."""
    import thetastream as th

    random = np.random.default_rng([seed, 7])
    ids = random.integers(0, KEYS, epochs * n)
    table = stamp(
        pa.table({"id": ids, "x": random.integers(0, 1000, epochs * n), "y": random.random(epochs * n)})
    )
    folder = clock.files("upserts", lambda: {"u": [table.slice(k * n, n) for k in range(epochs)]})

    def change(streams: dict[str, DataFrame], _: str) -> DataFrame:
        rows = streams["u"].select("id", "x", "y")
        return th.changes(rows, format="upsert", key="id")

    ran = clock.run(folder, ["u"], change, [F.expr(NET).alias("rows")], (epochs, epochs - WARMUP))
    return find_figures(ran, epochs, n, len(np.unique(ids)))


def measure_churn(seed: int) -> Row:
    """Replace the oldest rows of one side in each epoch; return the greatest number of stored tuples."""
    query = inputs.handshake(LIVE + CHURN_EPOCHS * REPLACED, seed)
    left, right = query.condition.sides
    sides = (replace(left, computed=(inside.SIGN_COLUMN,)), right)
    spec = replace(query.unit_spec(), condition=replace(query.condition, sides=sides))
    run = inside.LocalRun(inside.TwoStreamSpec(spec, Biclique((1, 1))))
    table = query.tables[0].combine_chunks()

    def make(*parts: tuple[int, int, int]) -> pa.RecordBatch:
        rows = pa.concat_tables([table.slice(start, n) for start, n, _ in parts])
        signs = np.concatenate([np.full(n, sign, np.int8) for _, n, sign in parts])
        rows = rows.append_column(inside.SIGN_COLUMN, pa.array(signs))
        hashes = np.concatenate([np.arange(start, start + n) for start, n, _ in parts])
        rows = rows.append_column(inside.HASH_COLUMN, pa.array(inside.scramble(hashes)))
        return rows.combine_chunks().to_batches()[0]

    most = 0
    for epoch in range(CHURN_EPOCHS + 1):
        old = (epoch - 1) * REPLACED
        batch = make((0, LIVE, 1)) if epoch == 0 else make((old, REPLACED, -1), (LIVE + old, REPLACED, 1))
        assert not list(run.epoch([batch, None]))
        most = max(most, sum(counters.held for counters in run.counters))
    held = sum(counters.held for counters in run.counters)
    return {"ratio": most / LIVE, "is_correct": held >= LIVE}


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    n = asked.epoch or (QUICK_EPOCH if asked.quick else EPOCH)
    epochs = WARMUP + (asked.epochs or (QUICK_EPOCHS if asked.quick else EPOCHS))
    plain = inputs.handshake(n * epochs, asked.seed).within((asked.window or n) / (n * epochs))
    changed = [add_changes(plain.tables[side], epochs, n, asked.seed + side) for side in Side]
    netted = replace(plain, tables=(changed[0][1], changed[1][1]))
    left, right = plain.files(epochs).values()
    with contextlib.closing(Clock()) as clock:
        clock.session()

        def measure(name: str, turn: str) -> Row:
            if name == INSERTS:
                row = measure_join(clock, plain, (left, right), False)
            elif name == CHANGES:
                row = measure_join(clock, netted, (changed[0][0], changed[1][0]), True)
            else:
                row = measure_upserts(clock, epochs, 2 * n, asked.seed)
            announce(
                f"{turn}: {row['tuples_per_s']:,.0f} tuples/s, {row['cpu_us_per_tuple']:.1f} CPU us/tuple"
                f" (load before: {row['load_before']:.1f})"
            )
            return row

        runs = measure_in_turn((INSERTS, CHANGES, UPSERTS), asked.repeat, measure)
    names = ("tuples_per_s", "epoch_ms_p50", "cpu_us_per_tuple")
    medians = {name: find_medians(found, names) for name, found in runs.items()}
    for name, found in runs.items():
        medians[name]["is_correct"] = all(run["is_correct"] for run in found)
    medians[CHANGES]["ratio"] = medians[CHANGES]["tuples_per_s"] / medians[INSERTS]["tuples_per_s"]
    medians[CHANGES]["cpu_ratio"] = (
        medians[INSERTS]["cpu_us_per_tuple"] / medians[CHANGES]["cpu_us_per_tuple"]
    )
    medians[CHURN] = measure_churn(asked.seed)
    rows = [{"name": name, "target": target, **medians[name]} for name, target in TARGETS.items()]
    head = (
        f"Rows that change: {n:,} tuples of each stream in an epoch and in the window, "
        f"{epochs - WARMUP} epochs, medians of {asked.repeat}, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
