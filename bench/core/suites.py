"""The suites that ``python -m bench`` runs: workloads and engines that are compared with each other."""

import argparse
import json
from dataclasses import dataclass
from typing import Any

from bench.core import backfill
from bench.core.answers import KINDS, SPARK_LEFT
from bench.core.data import Shape, Task
from bench.core.engines import COMPARED, STREAMING
from bench.core.workloads import WORKLOADS

SPARE_EPOCHS = 48
"""Number of further files, so that a fast engine has enough input for ``--warmup-seconds``."""


@dataclass(frozen=True)
class Suite:
    """Workloads of one run. Each runs on all engines, in epochs of all sizes."""

    workloads: tuple[str, ...]
    engines: tuple[str, ...] = COMPARED
    quick_engines: tuple[str, ...] = ("thetastream",)
    """The engines of a run with ``--quick``."""
    epochs: tuple[int, ...] = ()
    """Numbers of tuples of each stream in an epoch; without them, each workload has its own."""
    window: int | None = None
    """Number of tuples of each stream in the window; without it, each workload has its own."""
    begins_full: bool = False
    """Whether the streaming engines continue from one checkpoint with a full window."""
    base: str = ""
    """The workload whose throughput the others are compared with, instead of that of the other engines."""


BACKFILL = tuple(workload.name for workload in backfill.WORKLOADS)
SUITES = {name: Suite((name,)) for name in WORKLOADS if name not in BACKFILL} | {
    "aggregate": Suite(("handshake",), *[("spark-reader", "aggregate")] * 2),
    "outer": Suite(("handshake",), *[("spark-reader", *KINDS)] * 2, (131_072,)),
    "files": Suite(
        ("handshake",),
        ("units", "rows", "parquet", "copy"),
        ("units", "parquet"),
        window=2_097_152,
        begins_full=True,
    ),
    # Spark's own left join keeps 1.2 KB a tuple in its heap. The window of ``equi``, a million tuples of each
    # stream, fills the usual 4 GB.
    "outer-equi": Suite(("equi",), *[("left", SPARK_LEFT)] * 2, epochs=(262_144,), window=262_144),
    "backfill": Suite((*BACKFILL, "handshake"), ("thetastream",), epochs=backfill.EPOCHS, base="handshake"),
}


def list_tasks(suite: Suite, asked: argparse.Namespace) -> dict[str, Task]:
    """Make the tasks of a suite, by the names of their rows in the table."""
    epochs = (asked.epoch,) if asked.epoch else suite.epochs or (None,)
    is_single = len(suite.workloads) == len(epochs) == 1
    found = {}
    for epoch in epochs:
        for name in suite.workloads:
            shape, warmup = _choose_shape(name, epoch, asked, suite.window)
            for engine in asked.engines:
                if asked.rate and engine not in STREAMING:
                    continue
                options = read_options(asked.option, engine)
                continues = suite.begins_full and engine in STREAMING
                row = engine if is_single else f"{name} on {engine}, epochs of {shape.epoch:,}"
                found[row] = Task(
                    engine,
                    shape,
                    warmup,
                    asked.warmup_seconds,
                    asked.epochs,
                    asked.driver_memory,
                    asked.rate,
                    asked.seconds,
                    options,
                    shape.full_window(options) if continues else None,
                )
    return found


def _choose_shape(
    name: str, epoch: int | None, asked: argparse.Namespace, usual_window: int | None
) -> tuple[Shape, int]:
    spec = WORKLOADS[name]
    window = asked.window or usual_window or spec.window
    epoch = epoch or (spec.epoch if window <= 8 * spec.epoch else window // 8)
    warmup = -(-window // epoch) + 2 if asked.warmup is None else asked.warmup
    # A quick run reads the files of a usual one.
    files = warmup + (max(SPARE_EPOCHS, asked.epochs) if asked.warmup_seconds else asked.epochs)
    return Shape(spec.name, window, epoch, files, asked.seed), warmup


def list_pairs(suite: Suite, tasks: dict[str, Task]) -> list[tuple[str, str]]:
    """List the rows whose throughput is divided by that of another row."""
    if not suite.base:
        first = suite.engines[0]
        return [(first, row) for row in tasks if first in tasks and row != first]
    return [
        (row, other)
        for row, task in tasks.items()
        for other, base in tasks.items()
        if base.shape.workload == suite.base != task.shape.workload
        and (base.engine, base.shape.epoch) == (task.engine, task.shape.epoch)
    ]


def read_options(pairs: list[str], engine: str) -> dict[str, Any]:
    """Read the options of one engine. A value is read as JSON if it is JSON, and as text otherwise.

    >>> read_options(["spark.cell=40", "spark.provider=hdfs", "thetastream.m=2"], "spark")
    {'cell': 40, 'provider': 'hdfs'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        owner, _, key = name.partition(".")
        if owner == engine:
            try:
                options[key] = json.loads(value)
            except ValueError:
                options[key] = value
    return options
