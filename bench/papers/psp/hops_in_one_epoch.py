"""Response time of rings whose hops end in one epoch (after PSP, section 4.1).

A result of three streams leaves a ring as soon as the pairs of a join of two streams with as many tuples.

All queries read as many tuples in an epoch, and a tuple finds one partner in a hop on average. The response
time lasts from the end of the epoch before that of a result's latest tuple to the end of the epoch in which
the result leaves. The CPU time is that of all processes over the whole query.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.cpu_times import measure_cpu
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.response import count_by_file, respond
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.papers.psp.images import SECOND, START_US
from bench.papers.psp.sweeps import TRUTH
from thetastream.models import ATR, Biclique, Ring

NODES = 2
TUPLES = (3_000, 60_000)
"""Tuples of all streams in an epoch."""
EPOCHS = 12
SKIPPED = 5
"""Number of first epochs that are not timed: the window fills in them."""
EPOCH_S, WINDOW_S = 10, 40
AT_THE_END = np.ones(1)
ONE_EPOCH, MAILBOX, TWO = "Ring, one epoch", "Ring, mailbox", "Two streams"
MOST_SLOWER = 1.2
"""The target: the response time of the ring, divided by that of two streams."""


@dataclass(frozen=True)
class Numbers:
    """Streams of random numbers with event times. Neighbours join where numbers differ by 1 at most."""

    streams: int
    tuples: int
    """Tuples of all streams in an epoch."""
    seed: int

    @property
    def aliases(self) -> str:
        return "abc"[: self.streams]

    @property
    def on(self) -> list[str]:
        return [f"abs({left}.k - {right}.k) <= 1" for left, right in pairwise(self.aliases)]

    @cached_property
    def files(self) -> dict[str, list[pa.Table]]:
        """The tables of each stream, one for each epoch."""
        random = np.random.default_rng(self.seed)
        n = self.tuples // self.streams
        domain = 3 * n * WINDOW_S // EPOCH_S
        found: dict[str, list[pa.Table]] = {alias: [] for alias in self.aliases}
        for epoch in range(EPOCHS):
            for tables in found.values():
                times = START_US + EPOCH_S * SECOND * epoch + random.integers(0, EPOCH_S * SECOND, n)
                numbers = pa.array(random.integers(0, domain, n))
                tables.append(pa.table([pa.array(times, pa.timestamp("us", "UTC")), numbers], ["ts", "k"]))
        return found

    @cached_property
    def expected(self) -> int:
        """The number of results, by search in sorted numbers."""
        streams = [pa.concat_tables(tables) for tables in self.files.values()]
        times = [table["ts"].cast(pa.int64()).to_numpy() for table in streams]
        keys = [table["k"].to_numpy() for table in streams]
        found = np.arange(len(keys[0]))[:, None]
        for right in range(1, self.streams):
            order = np.argsort(keys[right], kind="stable")
            last = keys[right - 1][found[:, -1]]
            first, until = (
                np.searchsorted(keys[right][order], last + step, side)
                for step, side in ((-1, "left"), (1, "right"))
            )
            counts = until - first
            rows = np.repeat(np.arange(len(found)), counts)
            places = np.arange(len(rows)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
            found = np.column_stack([found[rows], order[places]])
            apart = [np.abs(times[m][found[:, m]] - times[right][found[:, right]]) for m in range(right)]
            found = found[(np.array(apart) <= WINDOW_S * SECOND).all(axis=0)]
        return len(found)


def measure(run: Run) -> Verdict:
    """Measure the ring with and without a mailbox, ATR, a cascade, and a join of two streams."""
    settings: dict[str, Model] = {
        TWO: Biclique((NODES // 2, NODES // 2)),
        ONE_EPOCH: Ring(NODES, hops="epoch"),
        MAILBOX: Ring(NODES, hops="mailbox"),
        "ATR": ATR(NODES, f"{WINDOW_S} seconds", "b"),
        "Cascade": Biclique((NODES // 2, NODES // 2)),
    }
    for tuples in [run.sized(n) for n in TUPLES]:

        def measure_model(name: str, _: str, tuples: int = tuples) -> Row:
            numbers = Numbers(2 if name == TWO else 3, tuples, run.seed)
            return run_once(run, numbers, name, settings[name])

        runs = measure_in_turn(settings, run.repeat, measure_model)
        for name, found in runs.items():
            run.runs += [{"model": name, "tuples": tuples, **row} for row in found]
            run.add(model=name, tuples=tuples, **find_medians(found))
    run.parameters = {"nodes": NODES, "epochs": EPOCHS, "window_epochs": WINDOW_S // EPOCH_S}
    sizes = run.rows.by("tuples", "tuples")
    response, rate = (
        {tuples: run.rows.where(tuples=tuples).by("model", what) for tuples in sizes}
        for what in ("response_ms", "tuples_per_s")
    )
    most = max(found[ONE_EPOCH] / found[TWO] for found in response.values())
    slowest = min(found[ONE_EPOCH] / found[MAILBOX] for found in rate.values())
    facts: dict[str, Any] = {f"with {n:,} tuples, ms to a result:": found for n, found in response.items()}
    facts |= {f"with {n:,} tuples, tuples per second:": found for n, found in rate.items()}
    facts["one epoch / mailbox, tuples per second, at least"] = slowest
    return Verdict(most <= MOST_SLOWER and slowest >= 1, most, facts, partly=most <= MOST_SLOWER)


def run_once(run: Run, numbers: Numbers, name: str, model: Model) -> Row:
    """Run one query; return its response time, the median epoch, and CPU time for each tuple."""
    import thetastream as th

    def join(inputs: dict[str, Any], mailbox: str) -> Any:
        return th.join(inputs, numbers.on, f"{WINDOW_S} seconds", model, mailbox=mailbox)

    before = measure_cpu()
    ran, counts = count_by_file(run.clock, numbers, numbers.files, join)
    cpu_s = measure_cpu().since(before).warm_s
    run.check(f"Spark: {name}, {numbers.tuples} tuples", numbers.expected, int(counts.sum()))
    epoch_ms = float(np.median(ran.ms[SKIPPED:EPOCHS]))
    row = {
        "response_ms": respond(ran.ms, counts[:, SKIPPED:], SKIPPED, AT_THE_END)["response_ms"],
        "response_epochs": respond(ran.ms, counts, 0, AT_THE_END)["response_epochs"],
        "epoch_ms": epoch_ms,
        "tuples_per_s": 1000 * numbers.tuples / epoch_ms,
        "cpu_us_per_tuple": 1e6 * cpu_s / (numbers.tuples * EPOCHS),
        "load_before": ran.load_before,
    }
    run.announce(
        f"{name}, {numbers.tuples:,} tuples: epoch {epoch_ms:.0f} ms, response {row['response_ms']:.0f} ms, "
        f"{row['cpu_us_per_tuple']:.0f} CPU us/tuple"
    )
    return row


FIGURE = Figure(
    measure,
    "ring in one epoch / two streams, ms",
    (
        Panel("response time", "tuples", "response_ms", "model", log="x"),
        Panel("CPU time", "tuples", "cpu_us_per_tuple", "model", log="xy"),
    ),
    "tuples|tuples in an epoch; model; response_epochs; response_ms; epoch_ms|median epoch (ms); "
    "tuples_per_s; cpu_us_per_tuple",
    needs_spark=True,
    truth=TRUTH,
)
