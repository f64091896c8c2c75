"""Replays SplitJoin and the handshake chain in one process, and measures the stages of an epoch.

    distribution   the router makes the blocks of all cores                  CPU time of one task
    execution      a core compares its part of the window, and stores        CPU time of each core
    gathering      the results of all cores are put into outer order         CPU time of one task

All cores begin an epoch together, and results are gathered when the last core is ready. So an epoch lasts as
long as the router, the busiest core and the gathering task together. The chain that hands on has no order.

The paper has 4 to 28 cores, windows of 5, 10 and 15 minutes, and count windows; with 28 cores, a window of 15
minutes holds about 2^21 tuples of each stream. Here it holds 2^13, a 256th, whatever the number of cores; the
others hold two thirds and a third of it. An epoch has an eighth of it.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

import numpy as np
import pyarrow as pa

from bench.core.figure import Run
from bench.core.internals import LocalJoin, Model, Order, UnitSpec, sort_results
from bench.core.query import START_US, TICKS_US, Query
from bench.core.replay import Step, cpu_of_units, find_latest, tuples_in
from bench.core.response import respond
from bench.core.rows import Row
from bench.papers import inputs
from bench.papers.esj.replay import replay as replay_chain
from thetastream.models import Chain

CORES = (4, 12, 28)
MINUTES = (5, 10, 15)
PER_EPOCH, LEAST = 1_024, 16
"""Tuples of a stream in an epoch, and the fewest of a small run."""
WINDOW_EPOCHS = 8
"""Number of epochs in the longest window."""
EPOCHS, WARMUP = 20, 9
"""Number of epochs, and of the first ones, in which the window fills. A chain that hands on has one more for
each worker, because its tuples move by one worker in each epoch."""
JUDGED = range(9, 11)
"""The epochs whose tuples are judged by their latency. Their pairs have met when the input ends."""
MOMENTS = np.linspace(0, 1, 21)
"""Moments of the epoch before, as shares of it, at which tuples arrive."""
REPLAYS = 2


@dataclass
class StagedStep(Step):
    """An epoch with the CPU seconds of the router and of the gathering task, which are zero for a chain."""

    routing_s: float = 0.0
    gathering_s: float = 0.0
    latest_us: Sequence[int] = ()
    """For each result, the event time of its later tuple."""

    @property
    def lasts_s(self) -> float:
        return self.routing_s + max(self.cpu_s) + self.gathering_s


@dataclass(frozen=True)
class Setting:
    """A model, and a window of ``window`` tuples of each stream, by event time or by count."""

    model: Model
    window: int
    per_epoch: int
    seed: int
    is_counted: bool = False

    @property
    def hands_on(self) -> bool:
        return isinstance(self.model, Chain) and not self.model.fast_forward

    @property
    def more_epochs(self) -> int:
        return self.model.n_units if self.hands_on else 0

    @property
    def epochs(self) -> int:
        return EPOCHS + self.more_epochs

    @property
    def measured(self) -> range:
        return range(WARMUP + self.more_epochs, self.epochs)

    def make_query(self) -> Query:
        # A small run would find no pairs with the paper's band.
        reach, n = 10 if self.per_epoch >= PER_EPOCH else 1_000, self.per_epoch * self.epochs
        whole = inputs.handshake(n, self.seed, reach).by("scan")
        return whole if self.is_counted else whole.within(self.window / n)

    def expected(self) -> int:
        query = self.make_query()
        if not self.is_counted:
            return query.expected
        # Both streams have the same event times, and among equal ones left tuples come first. So a right
        # tuple meets the left tuples of its own time and before, and a left tuple those before its own.
        tick = TICKS_US / query.tables[0].num_rows
        low, high = round((self.window - 0.5) * tick), round((self.window + 0.5) * tick)
        (r, s), on = query.aliases, query.duckdb_on
        return replace(
            query, duckdb_on=f"{on} AND {r}.ts BETWEEN {s}.ts - {low} AND {s}.ts + {high}"
        ).expected


def run_split(setting: Setting) -> list[StagedStep]:
    """Run a model with one exchange, whose results are in outer order."""
    query = setting.make_query()
    unit: UnitSpec = replace(query.unit_spec(), is_ordered=True)
    if setting.is_counted:
        unit = replace(unit, counts=(setting.window, setting.window))
    left, right = (len(table.schema.names) for table in query.tables)
    run, steps, volume = LocalJoin(unit, setting.model), [], 0
    for one, other, watermark in query.epochs(setting.epochs):
        volume += one.num_rows + other.num_rows
        step = StagedStep(volume)
        began = time.process_time()
        inboxes = run.deliver([one, other], watermark)
        step.routing_s = time.process_time() - began
        found = step.run_units(run, inboxes)
        names = [f"c{n}" for n in range(left + right + 2)]
        batches = [pa.RecordBatch.from_arrays(columns, names) for columns in found]
        began = time.process_time()
        for _ in sort_results(batches, Order(), (left, left + right + 1)):
            pass
        step.gathering_s = time.process_time() - began
        step.latest_us = find_latest(found, query)
        steps.append(step)
    return steps


def run_chain(setting: Setting) -> list[StagedStep]:
    """Run a chain that hands on, until no block is in flight. Its letters count for their senders."""
    query, model = setting.make_query(), cast(Chain, setting.model)
    parts = (
        (*(batch.select(table.schema.names) for batch, table in zip(both, query.tables, strict=True)), mark)
        for *both, mark in query.epochs(setting.epochs)
    )
    return [
        StagedStep(step.volume, step.results, step.units, step.cpu_s, latest_us=step.latest_us)
        for step in replay_chain(query, model, parts)
    ]


def respond_to(steps: list[StagedStep], setting: Setting) -> Row:
    """Compute the visiting latency: from the arrival of a pair's later tuple to the end of its epoch."""
    ms = [1e3 * step.lasts_s for step in steps]
    ticks = TICKS_US / (setting.per_epoch * setting.epochs)
    counts = np.zeros((len(steps), len(JUDGED)), dtype=np.int64)
    for epoch, step in enumerate(steps):
        number = np.rint((np.array(step.latest_us, dtype=np.int64) - START_US) / ticks).astype(int)
        files = number // setting.per_epoch - JUDGED[0]
        files = files[(files >= 0) & (files < len(JUDGED))]
        counts[epoch] += np.bincount(files, minlength=len(JUDGED))
    return respond(ms, counts, JUDGED[0], MOMENTS)


@cache
def measure_setting(setting: Setting) -> tuple[tuple[tuple[str, float], ...], int]:
    """Run a setting; return its figures, and its number of results. The same setting is run once."""
    measured, run_once = setting.measured, run_chain if setting.hands_on else run_split
    runs = [run_once(setting) for _ in range(REPLAYS)]
    steady = [[steps[epoch] for epoch in measured] for steps in runs]
    # The least of several replays counts, because disturbances only add time.
    routing, gathering = (
        1e3 * float(np.min([[getattr(step, name) for step in steps] for steps in steady], axis=0).mean())
        for name in ("routing_s", "gathering_s")
    )
    cores_ms = 1e3 * np.min([[step.cpu_s for step in steps] for steps in steady], axis=0)
    busiest = float(cores_ms.max(axis=1).mean())
    epoch_ms = routing + busiest + gathering
    cpu_s, tuples = (
        cpu_of_units([list(steps) for steps in runs], measured),
        tuples_in(list(runs[0]), measured),
    )
    found = {
        "bound_tuples_per_s": tuples / max(cpu_s),
        "cpu_us_per_tuple": 1e6 * sum(cpu_s) / tuples,
        # A tuple waits for what is left of the epoch that runs when it arrives.
        "waiting_ms": epoch_ms / 2,
        "routing_ms": routing,
        "exe_ms": float(cores_ms.mean()),
        "straggling_ms": busiest - float(cores_ms.mean()),
        "gathering_ms": gathering,
        "ete_ms": 1.5 * epoch_ms,
        **min((respond_to(steps, setting) for steps in runs), key=lambda row: row["response_ms"]),
    }
    return tuple(found.items()), sum(step.results for step in runs[0])


_EXPECTED: dict[tuple[int, int, int, int, bool], int] = {}


def count_expected(setting: Setting) -> int:
    """Count the results by DuckDB, once for all models that read the same tuples."""
    read = (setting.epochs, setting.window, setting.per_epoch, setting.seed, setting.is_counted)
    if read not in _EXPECTED:
        _EXPECTED[read] = setting.expected()
    return _EXPECTED[read]


def measure_window(run: Run, name: str, model: Model, window: int, is_counted: bool = False) -> Row:
    """Measure a model, check its number of results, and return the figures."""
    per_epoch = run.sized(PER_EPOCH, LEAST)
    setting = Setting(model, window, per_epoch, run.seed, is_counted)
    what = f"{name}, {model.n_units} cores, window {window:,}{' by count' if is_counted else ''}"
    run.announce(what)
    found, results = measure_setting(setting)
    run.check(what, count_expected(setting), results)
    return dict(found)


def windows(run: Run) -> dict[int, int]:
    """Return the tuples of a stream in the window, for each of the paper's lengths in minutes."""
    longest = WINDOW_EPOCHS * run.sized(PER_EPOCH, LEAST)
    return {minutes: longest * minutes // MINUTES[-1] for minutes in MINUTES}


def describe_run(run: Run) -> None:
    """Note the settings that all these figures share."""
    run.parameters = {
        "tuples_of_a_stream_and_epoch": run.sized(PER_EPOCH, LEAST),
        "measured_epochs": EPOCHS - WARMUP,
        "order of results": "outer",
    }
