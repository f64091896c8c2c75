"""Response time of whole queries in Spark (PSP, figure 8, by shape).

The ring answers sooner than aligned and coordinated tuple routing.

Epochs bring the same tuples as those of ``replay``, so results come in the same epochs, and the response time
is that of the epochs from the one of the last tuple on, as Spark timed them.
"""

import statistics
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.rows import Row
from bench.papers.psp.images import ALIASES, START_US, Streams, Workload, alike, streams_of
from bench.papers.psp.replay import EPOCH_US, cut, models, replay, waits
from bench.papers.psp.sweeps import TRUTH, given, spell
from thetastream.models import Biclique, Multiway

NODES = (1, 2)
SKIPPED = 3
"""Number of first epochs that are not timed, because Spark loads and compiles its code in them."""


def measure(run: Run) -> Verdict:
    """Measure Ring, ATR and CTR, and a cascade of joins of two streams with as many units on each side."""
    work = Workload(seed=run.seed).scaled(run.scale)
    for nodes in NODES:
        settings: dict[str, Model] = {**models(work, nodes), "Cascade": Biclique(nodes)}
        for label, model in settings.items():
            found = [run_once(run, work, model) for _ in range(run.repeat)]
            run.runs += [{"model": label, "nodes": nodes, **row} for row in found]
            median = {key: statistics.median(row[key] for row in found) for key in found[0]}
            run.add(model=label, setting=repr(model), nodes=nodes, **median)
    run.parameters = given(work)
    last = run.rows.where(nodes=NODES[-1])
    response, epoch = (last.by("model", name) for name in ("response_ms", "epoch_ms"))
    ratio = response["Ring"] / response["ATR"]
    text = (
        f"with {NODES[-1]} nodes on two cores results come after {spell(response, '{:.0f} ms')}, "
        f"{ratio:.2f} times ATR's time for the ring, and epochs take "
        f"{spell(epoch, '{:.0f} ms')}: a hop is an epoch here, not a message on a network, and that "
        "decides; the cascade joins two streams and then the third, with as many units a side, and stores "
        "what the first join finds"
    )
    return Verdict(ratio < 1, ratio, text)


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

    folder = run.clock.files(work, lambda: {ALIASES[n]: files(streams, n) for n in range(work.streams)})
    ran = run.clock.run(folder, aliases, join)
    run.check(f"Spark: {model!r}", streams.expected, sum(epoch.results for epoch in ran.epochs))
    arrived, found = epochs_of(work, model)
    late = arrived >= SKIPPED
    row = {
        "response_ms": float(waits(arrived[late], found[late], ran.ms).mean()),
        "epoch_ms": float(np.median(ran.ms[SKIPPED:])),
        "response_epochs": float(np.mean(found - arrived + 1)),
        "load_before": ran.load_before,
    }
    run.announce(f"Spark: {model!r}: epoch {row['epoch_ms']:.0f} ms, response {row['response_ms']:.0f} ms")
    return row


def epochs_of(work: Workload, model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return for each result the epochs of its last tuple and of itself, from the same epochs in one process.

    A model of two streams makes a cascade of joins, in which a result leaves in the epoch of its last tuple.
    """
    if isinstance(model, Multiway):
        same = replay(work, model)
        return same.arrived, same.found
    arrived = replay(work, models(work, 1)["Ring"]).arrived
    return arrived, arrived


def files(streams: Streams, n: int) -> Iterator[pa.Table]:
    table = streams.table(n).rename_columns(["id", "ts", "img"])
    table = table.set_column(1, "ts", table.column("ts").cast(pa.timestamp("us", "UTC")))
    cuts = np.arange(START_US, streams.end_us + EPOCH_US, EPOCH_US)
    for start, end in pairwise(np.searchsorted(streams.times[n], cuts, side="right")):
        batch = cut(table, start, end)
        yield table.schema.empty_table() if batch is None else pa.Table.from_batches([batch])


FIGURE = Figure(
    __doc__,
    measure,
    "ring / ATR, ms",
    (
        Panel("response time", "nodes", "response_ms", "model"),
        Panel("median epoch", "nodes", "epoch_ms", "model"),
    ),
    "nodes; model; setting|setting|`{}`; response_epochs; response_ms; epoch_ms|median epoch (ms)",
    needs_spark=True,
    truth=TRUTH,
)
