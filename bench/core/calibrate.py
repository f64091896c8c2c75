"""Measures the constants of the simulator's CPU time: ``python -m bench calibrate``.

    driver       EPOCH_S + TASK_S * tasks
    executors    EXECUTOR_S * (executors - 1) + ROUTER_TASK_S * router tasks + PARTITION_S * partitions
                 + INPUT_S * tuples + RESULT_BYTE_S * bytes of results + the work of units

in CPU seconds of an epoch. Queries run on executors of one core, because the driver is a process of its own
there. Nearly empty epochs give the constants of epochs, tasks, partitions and executors. A query that only
routes gives that of the input. Equality joins without results and with ten results a tuple give that of
results. None of these is a run with which the simulator is compared: ``python -m bench executors`` runs a
band join.
"""

import argparse
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench.core import spark
from bench.core.cpu_times import CpuTimes
from bench.core.internals import (
    CANDIDATE_S,
    HASH_COLUMN,
    SEND_BYTE_S,
    Domain,
    Equality,
    FittedSpec,
    Side,
    TwoStreamSpec,
    limits,
    route_rows,
)
from bench.core.publishing import publish_table
from bench.core.query import Query, keys, stamp
from bench.core.warm_clock import WarmClock
from thetastream.models import Biclique

EMPTY, SMALL, MIDDLE, LARGE = 16, 5_000, 50_000, 300_000
"""Tuples of a stream in an epoch: of epochs that are nearly empty, and of those whose tuples count."""
WINDOW_EPOCHS, PARTNERS = 4, 10
"""The window, and the partners of a tuple in a join with results."""
NO_PARTNER = 1 << 60
"""A number of keys of which no two tuples have the same."""
EPOCHS, SETTLE = 10, 4
"""Measured epochs, and the epochs before them."""
SHOWN = "constant; measured; in_use|in use; unit; is_correct|counts are correct"


@dataclass(frozen=True)
class Cell:
    """A query, and the shape of its epochs."""

    name: str
    size: int
    units: int = 2
    """The units, which are as many as partitions."""
    n_keys: int = NO_PARTNER
    files: int = 1
    """Files of a stream in an epoch. Each is read by a router task of its own."""
    executors: int = 1
    routes_only: bool = False
    """Whether blocks go to the sink, and no unit gets them."""
    warmup: int = SETTLE

    @property
    def n_epochs(self) -> int:
        return self.warmup + EPOCHS

    @property
    def model(self) -> Biclique:
        return Biclique((self.units // 2, self.units // 2))


CELLS = (
    Cell("first, not used", MIDDLE, n_keys=WINDOW_EPOCHS * MIDDLE // PARTNERS, warmup=20),
    Cell("two partitions", EMPTY),
    Cell("eight partitions", EMPTY, units=8),
    Cell("forty files", EMPTY, files=40),
    Cell("few routed", SMALL, units=4, routes_only=True),
    Cell("many routed", LARGE, units=4, routes_only=True),
    Cell("no results", MIDDLE),
    Cell("results", MIDDLE, n_keys=WINDOW_EPOCHS * MIDDLE // PARTNERS),
    Cell("first of four, not used", MIDDLE, units=4, executors=4, warmup=20),
    Cell("four executors", EMPTY, units=4, executors=4),
)
"""The first queries of a session compile its code."""
CELL = {cell.name: cell for cell in CELLS}


@dataclass(frozen=True)
class Found:
    """What an epoch of a cell takes and has."""

    cpu: CpuTimes
    results: float
    sent_bytes: float
    """Bytes of a tuple in a block. It is 0 if units receive none."""
    is_correct: bool


@lru_cache
def make_query(cell: Cell, seed: int) -> Query:
    """Make the join of two streams of (k, ts) by the equality of k."""

    def draw(side: Side) -> pa.Table:
        random = np.random.default_rng([seed, side])
        return stamp(pa.table({"k": random.integers(0, cell.n_keys, cell.size * cell.n_epochs)}))

    tables = draw(Side.LEFT), draw(Side.RIGHT)
    equality = (Equality(0, 0),)
    query = Query("equality", ("l", "r"), tables, "l.k = r.k", keys("k", domain=Domain.INT), equality)
    return query.within(WINDOW_EPOCHS / cell.n_epochs)


def route_only(query: Query, model: Biclique, streams: dict[str, DataFrame], mailboxes: str) -> DataFrame:
    """Route the tuples of both streams, and leave the blocks as rows."""
    fitted = FittedSpec(TwoStreamSpec(query.unit_spec(), model))
    left, right = (
        route_rows(fitted, number, stream.select("*", F.xxhash64("*").alias(HASH_COLUMN)), alias)
        for number, (alias, stream) in enumerate(streams.items())
    )
    return left.unionByName(right)


def measure(clock: WarmClock, cell: Cell, asked: argparse.Namespace) -> Found:
    """Measure an epoch of a cell."""
    query, n = make_query(cell, asked.seed), cell.n_epochs
    clock.session().conf.set("spark.sql.shuffle.partitions", cell.units)
    join: Callable[[dict[str, DataFrame], str], DataFrame]
    join = partial(route_only, query, cell.model) if cell.routes_only else partial(_join, query, cell.model)
    folder = clock.files_of(query, n * cell.files)
    ran = clock.run(folder, query.aliases, join, measured=(n, EPOCHS), files_per_epoch=cell.files)
    found = spark.with_input(ran.epochs)[:n]
    measured = found[ran.since :]
    is_correct = cell.routes_only or sum(epoch.results for epoch in found) == query.expected
    results = sum(epoch.results for epoch in measured) / len(measured)
    last = ran.counters[-1] if ran.counters else {"received": 0}
    sent_bytes = last["received_bytes"] / last["received"] if last["received"] else 0.0
    return Found(ran.cpu.divide(len(measured)), results, sent_bytes, is_correct)


def _join(query: Query, model: Biclique, streams: dict[str, DataFrame], mailboxes: str) -> DataFrame:
    return query.join(streams, model)  # type: ignore[no-any-return]


def compute_constants(found: Mapping[str, Found]) -> dict[str, float]:
    """Compute the constants. What the planner has a constant for is taken off."""
    base, partitions, files, four = (
        found[name] for name in ("two partitions", "eight partitions", "forty files", "four executors")
    )
    few, many, without, results = (
        found[name] for name in ("few routed", "many routed", "no results", "results")
    )
    # 1. Nearly empty epochs differ from the base in one number.
    more_routers = 2 * (CELL["forty files"].files - CELL["two partitions"].files)
    more_partitions = CELL["eight partitions"].units - CELL["two partitions"].units
    task_s = (files.cpu.driver_s - base.cpu.driver_s) / more_routers
    router_s = (files.cpu.executors_s - base.cpu.executors_s) / more_routers
    partition_s = (partitions.cpu.executors_s - base.cpu.executors_s) / more_partitions
    # 2. Four executors also have two partitions more than the base.
    executors_s = four.cpu.executors_s - base.cpu.executors_s - 2 * partition_s
    # 3. A routed tuple goes to the unit that stores it, and to two that probe.
    routed_s = (many.cpu.executors_s - few.cpu.executors_s) / (2 * (LARGE - SMALL))
    result_s = (results.cpu.executors_s - without.cpu.executors_s) / (results.results - without.results)
    return {
        "EPOCH_S": base.cpu.driver_s - 4 * task_s,
        "TASK_S": task_s,
        "ROUTER_TASK_S": router_s,
        "PARTITION_S": partition_s,
        "EXECUTOR_S": executors_s / 3,
        "INPUT_S": routed_s - 3 * without.sent_bytes * SEND_BYTE_S,
        "RESULT_BYTE_S": (result_s - CANDIDATE_S) / (2 * results.sent_bytes),
    }


def main(asked: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Measure, print and write; return 1 if a count is wrong."""
    found = {}
    for executors, cells in groupby(CELLS, lambda cell: cell.executors):
        with contextlib.closing(WarmClock(executors, 2)) as clock:
            for cell in cells:
                found[cell.name] = measure(clock, cell, asked)
                cpu = found[cell.name].cpu
                announce(
                    f"{cell.name}: CPU s of the driver {cpu.driver_s:.3f},"
                    f" of executors {cpu.executors_s:.3f}, of compilers {cpu.compiling_s:.3f}"
                )
    is_correct = all(one.is_correct for one in found.values())
    rows = [
        {
            "constant": name,
            "measured": f"{seconds:.3g}",
            "in_use": f"{getattr(limits, name):.3g}",
            "unit": "s",
            "is_correct": is_correct,
        }
        for name, seconds in compute_constants(found).items()
    ]
    head = f"The constants of the simulator: CPU time of {EPOCHS} epochs, seed {asked.seed}."
    return publish_table(head, SHOWN, rows, asked)
