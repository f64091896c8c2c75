"""Small epochs, beside the least that Spark can do: ``python -m bench floor``.

The floor is a query with the same inputs and as many partitions, whose stateful operator only counts tuples
and keeps their number as its one small value. The join has no equality. Both read one file of each stream per
epoch, in one Spark session, in turn. The targets are 1.3 times the floor for epochs of 2 x 1,000 tuples, and
a 99th percentile of at most 2 times the median.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.core import spark
from bench.core.clock import Clock
from bench.core.internals import Domain, Key, Side
from bench.core.publishing import publish_table
from bench.core.query import Query, band, stamp
from bench.core.rows import Row, find_medians, measure_in_turn
from thetastream.models import Biclique

SIZES = (1_000, 12_288)
"""Tuples of each stream in an epoch."""
EPOCHS, QUICK_EPOCHS, WARMUP = 300, 10, 10
"""Measured epochs without ``--epochs``, those of ``--quick``, and the epochs before them."""
FLOOR, JOIN = "floor", "thetastream"
VALUES, REACH, WINDOW_EPOCHS, UNITS = 1 << 20, 32, 4, 2
SHOWN = (
    "name|operator; size|tuples of a stream; epoch_ms_p50; epoch_ms_p99; p99_to_p50|99 % / median;"
    " add_batch_ms|addBatch, ms; tuples_per_s; to_floor|epoch / floor; is_correct|count is correct"
)


class CountTuples(StatefulProcessor):
    """Counts the tuples of a unit, and keeps their number."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # type: ignore[override]
        import pandas as pd

        n = sum(map(len, rows))
        before = self._total.get()[0] if self._total.exists() else 0
        self._total.update((before + n,))
        yield pd.DataFrame({"n": [n]})

    def close(self) -> None:
        pass


def count_tuples(streams: dict[str, DataFrame], mailbox: str) -> DataFrame:
    """Make the query that is the floor."""
    parts = [stream.select(F.pmod("v", F.lit(UNITS)).alias("unit"), "v") for stream in streams.values()]
    counted = parts[0].union(parts[1]).groupBy("unit")
    return counted.transformWithStateInPandas(CountTuples(), "n BIGINT", "append", "none")


def make_query(size: int, epochs: int, seed: int) -> Query:
    def draw(side: Side) -> pa.Table:
        random = np.random.default_rng([seed, side])
        return stamp(pa.table({"v": random.integers(0, VALUES, size * epochs)}))

    key = (Key("v", Domain.INT),)
    on = f"abs(l.v - r.v) <= {REACH}"
    query = Query(
        "band", ("l", "r"), (draw(Side.LEFT), draw(Side.RIGHT)), on, (key, key), dimensions=(band(0, REACH),)
    )
    return query.within(WINDOW_EPOCHS / epochs)


def join(query: Query, streams: dict[str, DataFrame], mailbox: str) -> DataFrame:
    """Make the query whose epochs are compared with the floor."""
    return query.join(streams, Biclique((1, 1)))  # type: ignore[no-any-return]


def measure(clock: Clock, query: Query, epochs: int, name: str, announce: Callable[[str], None]) -> Row:
    """Run one query; return its figures, and whether its count is correct."""
    if name == FLOOR:
        make, observed, expected = count_tuples, F.coalesce(F.sum("n"), F.lit(0)), query.volume
    else:
        make, observed, expected = partial(join, query), F.count(F.lit(1)), query.expected
    files = clock.files_of(query, epochs)
    ran = clock.run(files, query.aliases, make, [observed.alias("rows")])
    found = spark.with_input(ran.epochs)[WARMUP:]
    ms = [epoch.ms for epoch in found]
    p50, p99 = (float(np.percentile(ms, percentile)) for percentile in (50, 99))
    row = {
        "epoch_ms_p50": p50,
        "epoch_ms_p99": p99,
        "p99_to_p50": p99 / p50,
        "add_batch_ms": float(np.median([epoch.phases_ms["addBatch"] for epoch in found])),
        "tuples_per_s": 1e3 * query.volume / epochs * len(ms) / sum(ms),
        "is_correct": sum(epoch.results for epoch in ran.epochs) == expected,
        "load_before": ran.load_before,
    }
    announce(f"{name}: epoch {p50:.0f} ms, 99 % {p99:.0f} ms (load before: {ran.load_before:.1f})")
    return row


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    epochs = WARMUP + (asked.epochs or (QUICK_EPOCHS if asked.quick else EPOCHS))
    sizes = (asked.epoch,) if asked.epoch else SIZES
    rows = []
    with contextlib.closing(Clock()) as clock:
        clock.session()  # Columns exist only beside a session.
        for size in sizes:
            query = make_query(size, epochs, asked.seed)
            runs = measure_in_turn(
                (FLOOR, JOIN),
                asked.repeat,
                lambda name, turn, query=query: measure(clock, query, epochs, name, announce),
            )
            medians = {name: find_medians(found) for name, found in runs.items()}
            for name, median in medians.items():
                to_floor = median["epoch_ms_p50"] / medians[FLOOR]["epoch_ms_p50"]
                is_correct = all(run["is_correct"] for run in runs[name])
                rows.append(
                    {**median, "size": size, "name": name, "to_floor": to_floor, "is_correct": is_correct}
                )
    head = (
        f"Epochs of a band join beside an empty stateful operator: {epochs - WARMUP} epochs, medians of"
        f" {asked.repeat}, seed {asked.seed}."
    )
    return publish_table(head, SHOWN, rows, asked)


# Spark's workers cannot import this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
