"""Three join tasks over the same two streams: ``python -m bench tasks``.

    near      the band of handshake          wide   a band twice as wide
    flagged   a band three times as wide, of half of the tuples of s

They run as one query of ``th.join_many``, as the same query with ``max_tasks``, to which tasks can be added,
and as a query each. With ``max_tasks``, the filters that all tasks share run in units, behind the exchange.
So all three ways are measured without such a filter, and with one that keeps a quarter of each stream. A
tuple of several queries counts once. The exit code is 1 if a number of results is not that of DuckDB.
"""

import argparse
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import thetastream as th
from bench.core import spark
from bench.core.clock import Clock
from bench.core.publishing import publish_table
from bench.core.query import Query
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.papers import inputs
from thetastream.models import Biclique

EPOCH, QUICK_EPOCH = 65_536, 16_384
"""Tuples of each stream in an epoch."""
EPOCHS, QUICK_EPOCHS, WARMUP = 8, 3, 4
"""Measured epochs, those of ``--quick``, and the epochs before them, which are twice the window."""
REACHES = {"near": (10, ""), "wide": (20, ""), "flagged": (30, " AND s.d")}
"""The tasks: how far the bands reach, and a filter."""
FILTERS = {"everything": "", "a quarter": " AND r.x <= 2500 AND s.a <= 2500"}
"""The filter that all tasks share, by what it keeps."""
ONE, CHANGING, EACH = "one query", "one query, max_tasks", "a query each"
MODEL = Biclique((1, 1))
MOST = 8
SHOWN = (
    "filter|shared filter keeps; way|tasks run as; tuples_per_s; epoch_ms_p50;"
    " cpu_us_per_tuple|CPU us a tuple; ratio|CPU, beside one query; is_correct|counts are correct"
)


def make_tasks(n: int, seed: int, share: float, shared: str) -> dict[str, Query]:
    """Make the joins over ``n`` tuples of each stream, in a window that is a share of them."""
    found = {}
    for name, (reach, own) in REACHES.items():
        query = inputs.handshake(n, seed, reach)
        words = f"{own}{shared}"
        found[name] = replace(query, on=query.on + words, duckdb_on=query.duckdb_on + words).within(share)
    return found


def join_tasks(
    tasks: Mapping[str, Query], max_tasks: int | None, streams: dict[str, DataFrame], mailbox: str
) -> DataFrame:
    """Join by all tasks together."""
    (window_us,) = {query.window_us for query in tasks.values()}
    described = {
        name: {"on": query.on, "within": f"{window_us} microseconds"} for name, query in tasks.items()
    }
    joined = th.join_many(streams, described, MODEL, max_tasks=max_tasks, mailbox=mailbox)
    return joined.together


def measure(clock: Clock, tasks: Mapping[str, Query], way: str, epochs: int) -> Row:
    """Run all tasks once, and add the figures of queries that run after each other."""
    first, *_ = tasks.values()
    folder = clock.files_of(first, epochs)
    if way == EACH:
        joins = [lambda streams, _, query=query: query.join(streams, MODEL) for query in tasks.values()]
    else:
        joins = [partial(join_tasks, tasks, MOST if way == CHANGING else None)]
    n = 2 * first.tables[0].num_rows // epochs
    rows, cpu_s, epoch_ms, seconds = 0, 0.0, 0.0, 0.0
    for join in joins:
        ran = clock.run(
            folder, first.aliases, join, [F.count(F.lit(1)).alias("rows")], (epochs, epochs - WARMUP)
        )
        found = spark.with_input(ran.epochs)[:epochs]
        figures = spark.steady(found, ran.since, n)
        rows += sum(epoch.results for epoch in found)
        cpu_s += ran.cpu.living_s
        epoch_ms += figures["epoch_ms_p50"]
        seconds += n / figures["tuples_per_s"]
    return {
        "tuples_per_s": n / seconds,
        "epoch_ms_p50": epoch_ms,
        "cpu_us_per_tuple": 1e6 * cpu_s / (n * (epochs - WARMUP)),
        "rows": rows,
    }


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    n = asked.epoch or (QUICK_EPOCH if asked.quick else EPOCH)
    epochs = WARMUP + (asked.epochs or (QUICK_EPOCHS if asked.quick else EPOCHS))
    share = (asked.window or 2 * n) / (n * epochs)
    tasks = {name: make_tasks(n * epochs, asked.seed, share, words) for name, words in FILTERS.items()}
    settings = {f"{name}, {way}": (name, way) for name in FILTERS for way in (ONE, CHANGING, EACH)}
    with contextlib.closing(Clock()) as clock:
        clock.session()
        announce("warming up Spark")
        measure(clock, tasks["everything"], ONE, epochs)

        def run(setting: str, turn: str) -> Row:
            name, way = settings[setting]
            row = measure(clock, tasks[name], way, epochs)
            announce(
                f"{turn}: {row['tuples_per_s']:,.0f} tuples/s, {row['cpu_us_per_tuple']:.1f} CPU us/tuple"
            )
            return row

        runs = measure_in_turn(settings, asked.repeat, run)
    rows = []
    for setting, (name, way) in settings.items():
        expected = sum(query.expected for query in tasks[name].values())
        medians, of_one = (find_medians(runs[one]) for one in (setting, f"{name}, {ONE}"))
        ratio = medians["cpu_us_per_tuple"] / of_one["cpu_us_per_tuple"]
        is_correct = all(row["rows"] == expected for row in runs[setting])
        rows.append({"filter": name, "way": way, **medians, "ratio": ratio, "is_correct": is_correct})
    window = round(share * n * epochs)
    head = (
        f"Three join tasks: {n:,} tuples of each stream in an epoch, a window of {window:,},"
        f" {epochs - WARMUP} epochs, medians of {asked.repeat}, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)
