"""Whole queries in Spark: milliseconds from the arrival of a pair's last tuple to the pair.

A query reads one file of each stream per epoch. Every tuple carries the number of its file, and ``observe``
counts the pairs of an epoch by the file of their later tuple: nothing is replayed. A tuple comes at any
moment of the epoch before its own, so a pair that is found in epoch f, its last tuple read in epoch e, has
waited for what is left of epoch e - 1, and for the epochs e to f.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from bench.esj.inputs import Keyed
from bench.figures.figure import Check, Row
from bench.figures.timing import Clock
from thetastream.models.base import Model
from thetastream.types import Side

FILE = "e"
"""Column with the number of a tuple's file."""
OBSERVED = "bench_found"
MOMENTS = np.linspace(0, 1, 21)
"""Of the epoch before, at which tuples come."""


@dataclass(frozen=True)
class Plan:
    """Epochs of a run: those with input, and the files whose pairs are judged."""

    epochs: int
    first: int
    last: int
    """Behind the judged ones, so that their pairs have met or expired before the input ends."""


def filed(query: Keyed, epochs: int) -> Keyed:
    """The query whose tuples carry the number of their file."""
    tables = []
    for side, table in zip(Side, query.tables, strict=True):
        starts = [start for start, _ in query.bounds(side, epochs)]
        numbers = np.searchsorted(starts, np.arange(table.num_rows), side="right") - 1
        tables.append(table.append_column(FILE, pa.array(numbers)))
    return replace(query, tables=(tables[0], tables[1]))


def run(clock: Clock, query: Keyed, model: Model, plan: Plan) -> tuple[Row, Check]:
    """One query, from its first epoch until nothing is in flight."""
    import thetastream as th

    spark = clock.session()
    folder = clock.files(query, plan.epochs)
    where = Path(tempfile.mkdtemp(prefix="bench-esj-run-"))
    left, right = (
        spark.readStream.schema(spark.read.parquet(str(folder / alias)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / alias))
        .withWatermark("ts", "0 seconds")
        for alias in query.aliases
    )
    a, b = query.aliases
    load = os.getloadavg()[0]
    joined = th.join(
        {a: left, b: right},
        on=query.on,
        within=f"{query.window_us} microseconds",
        model=model,
        mailbox=str(where / "mailboxes"),
    )
    later = F.greatest(F.col(f"{a}.{FILE}"), F.col(f"{b}.{FILE}"))
    counts = [F.count_if(later == number).alias(f"f{number}") for number in range(plan.epochs)]
    running = (
        joined.observe(OBSERVED, *counts)
        .writeStream.format("noop")
        .option("checkpointLocation", str(where / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination()
    ms, found = [], []
    for progress in running.recentProgress:
        ms.append(float(progress["durationMs"]["triggerExecution"]))
        row: Any = progress["observedMetrics"].get(OBSERVED)
        found.append([0] * plan.epochs if row is None else [row[f"f{n}"] for n in range(plan.epochs)])
    shutil.rmtree(where, ignore_errors=True)
    judged = slice(plan.first, plan.epochs)
    tuples = query.volume / plan.epochs * (plan.epochs - plan.first)
    pairs = np.array(found)[:, plan.first : plan.last]
    return {
        **response(np.array(ms), pairs, plan.first),
        "epoch_ms": float(np.median(ms[judged])),
        "tuples_per_s": 1e3 * tuples / sum(ms[judged]),
        "epochs": len(ms),
        "load_before": load,
    }, Check(f"Spark: {model!r}", query.expected(), int(np.sum(found)))


def response(ms: np.ndarray, pairs: np.ndarray, first: int) -> Row:
    """Milliseconds and epochs from arrival to pair; ``pairs[f, n]`` were found in epoch f, their last tuple
    is of file first + n.

    >>> found = response(np.array([100.0, 10.0, 10.0]), np.array([[0], [3], [1]]), 1)
    >>> found["response_ms"], found["response_epochs"], found["at_once"]
    (62.5, 1.25, 0.75)
    """
    until = np.concatenate([[0.0], np.cumsum(ms)])
    epochs, files = np.nonzero(pairs)
    weights = pairs[epochs, files]
    came = files + first
    begun = until[came - 1] + np.multiply.outer(MOMENTS, ms[came - 1])
    waits = until[epochs + 1] - begun
    order = np.argsort(waits, axis=None)
    share = np.cumsum(np.broadcast_to(weights, waits.shape).ravel()[order])
    spread = {
        f"response_ms_p{percent}": float(
            waits.ravel()[order][np.searchsorted(share, share[-1] * percent / 100)]
        )
        for percent in (50, 99)
    }
    return {
        "response_ms": float(np.average(waits.mean(axis=0), weights=weights)),
        **spread,
        "response_epochs": float(np.average(epochs - came + 1, weights=weights)),
        "at_once": float(weights[epochs == came].sum() / weights.sum()),
    }
