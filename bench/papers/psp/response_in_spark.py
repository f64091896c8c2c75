"""Response time of whole queries in Spark (PSP, figures 8a, 8c and 8e, in Spark).

The ring answers sooner than aligned and coordinated tuple routing.

The response time lasts from the beginning of the epoch that reads a result's latest tuple to the end of the
epoch in which the result leaves (``bench.core.response``).
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.response import count_by_file, respond
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.papers.psp.images import ALIASES, START_US, Streams, Workload, alike, streams_of
from bench.papers.psp.replay import EPOCH_US, models
from bench.papers.psp.sweeps import TRUTH, given
from thetastream.models import Biclique

NODES = (1, 2)
SKIPPED = 3
"""Number of first epochs that are not timed, because Spark loads and compiles its code in them."""
AT_THE_END = np.ones(1)
"""Tuples count from the end of the epoch before their own, in which they arrive."""


def measure(run: Run) -> Verdict:
    """Measure Ring, ATR and CTR, and a cascade of joins of two streams with as many units on each side."""
    work = Workload(seed=run.seed).scaled(run.scale)
    for nodes in NODES:
        settings: dict[str, Model] = {**models(work, nodes), "Cascade": Biclique(nodes)}

        def measure_model(name: str, _: str, settings: dict[str, Model] = settings) -> Row:
            return run_once(run, work, settings[name])

        runs = measure_in_turn(settings, run.repeat, measure_model)
        for label, found in runs.items():
            run.runs += [{"model": label, "nodes": nodes, **row} for row in found]
            run.add(model=label, setting=repr(settings[label]), nodes=nodes, **find_medians(found))
    run.parameters = given(work)
    last = run.rows.where(nodes=NODES[-1])
    response, epoch = (last.by("model", name) for name in ("response_ms", "epoch_ms"))
    ratio = response["Ring"] / response["ATR"]
    facts = {
        f"with {NODES[-1]} nodes on two cores, ms to a result:": response,
        "the ring takes the time of ATR times": ratio,
        "ms of an epoch:": epoch,
    }
    remark = (
        "a hop is an epoch here, not a message on a network, and that decides; the cascade joins two streams"
        " and then the third, with as many units a side, and stores what the first join finds"
    )
    return Verdict(ratio < 1, ratio, facts, remark)


def run_once(run: Run, work: Workload, model: Model) -> Row:
    """Run one query; return the milliseconds from arrival to result and of the median epoch."""
    import thetastream as th

    streams, aliases = streams_of(work), ALIASES[: work.streams]
    on = [
        th.predicate(**{left: ["img"], right: ["img"]})(alike(left, right, streams.threshold))
        for left, right in pairwise(aliases)
    ]

    def join(inputs: dict[str, Any], mailbox: str) -> Any:
        return th.join(inputs, on, f"{work.window_us} microseconds", model, mailbox=mailbox)

    files = {alias: cut(streams, stream) for stream, alias in enumerate(aliases)}
    ran, counts = count_by_file(run.clock, work, files, join)
    run.check(f"Spark: {model!r}", streams.expected, int(counts.sum()))
    row = {
        "response_ms": respond(ran.ms, counts[:, SKIPPED:], SKIPPED, AT_THE_END)["response_ms"],
        "epoch_ms": float(np.median(ran.ms[SKIPPED:])),
        "response_epochs": respond(ran.ms, counts, 0, AT_THE_END)["response_epochs"],
        "load_before": ran.load_before,
    }
    run.announce(f"Spark: {model!r}: epoch {row['epoch_ms']:.0f} ms, response {row['response_ms']:.0f} ms")
    return row


def cut(streams: Streams, stream: int) -> list[pa.Table]:
    """Cut a stream into one table for each epoch of event time."""
    table = streams.table(stream).rename_columns(["id", "ts", "img"])
    table = table.set_column(1, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
    until = np.arange(START_US, streams.end_us + EPOCH_US, EPOCH_US)
    places = np.searchsorted(streams.times[stream], until, side="right")
    return [table.slice(start, end - start) for start, end in pairwise(places)]


FIGURE = Figure(
    measure,
    "ring / ATR, ms",
    (
        Panel("response time", "nodes", "response_ms", "model"),
        Panel("median epoch", "nodes", "epoch_ms", "model"),
    ),
    "nodes; model; setting; response_epochs; response_ms; epoch_ms|median epoch (ms)",
    needs_spark=True,
    truth=TRUTH,
)
