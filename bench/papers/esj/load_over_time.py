"""Loads of the workers over time (ESJ, load balancing by MP-2PF).

Loads of neighbours stay within the threshold and a block of each other, whatever the input does.

A worker sends a block when its load exceeds the last known load of its neighbour, plus the tuples under way
to the neighbour, by more than the threshold. A message takes an epoch. So the loads of neighbours differ by
at most threshold + block when nothing moves. While tuples flow, the difference includes the tuples under way.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Side
from bench.core.query import START_US, Query
from bench.core.replay import total
from bench.core.rows import Row
from bench.papers.esj.inputs import draw_tuples, make_join
from bench.papers.esj.replay import ChainStep, Epoch, replay
from thetastream.models import Chain

WORKERS = 4
PER_EPOCH, BLOCK, WINDOW_EPOCHS = 512, 128, 16
"""Tuples of a stream in an epoch, tuples of a block, epochs of a window. The threshold is a block."""
EPOCH_US = 1_000_000
SETTLED = 4
"""Number of first epochs of a phase that are not judged, until a message has reached the end of the chain."""


@dataclass(frozen=True)
class Phase:
    """A number of epochs with the same arrivals."""

    name: str
    epochs: int
    left: int = 0
    right: int = 0
    """Arrivals as multiples of ``PER_EPOCH``."""


PHASES = (
    Phase("filling", 16, 1, 1),
    Phase("steady", 20, 1, 1),
    Phase("burst", 4, 6, 6),
    Phase("after the burst", 12, 1, 1),
    Phase("silence", 12),
    Phase("left alone", 12, 1, 0),
    Phase("steady again", 20, 1, 1),
)


def script(
    run: Run, phases: tuple[Phase, ...] = PHASES, arrivals: int = PER_EPOCH
) -> tuple[Query, list[Epoch]]:
    """Make the query and its input, epoch by epoch. An epoch is a second of event time."""
    epochs: list[Epoch] = []
    newest: dict[Side, int] = {}
    tables: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    per_epoch = run.sized(arrivals, 16)
    for number, phase in enumerate(each for each in phases for _ in range(each.epochs)):
        watermark = min(newest.values()) - 1 if len(newest) == 2 else None
        batches = []
        for side, times in zip(Side, (phase.left, phase.right), strict=True):
            n = times * per_epoch
            table = draw_tuples(np.random.default_rng([run.seed, side, number]), n)
            ts = START_US + number * EPOCH_US + np.arange(n) * EPOCH_US // max(1, n)
            table = table.append_column("ts", pa.array(ts, pa.timestamp("us", tz="UTC")))
            tables[side].append(table)
            if n:
                newest[side] = int(ts[-1])
            batches.append(table.to_batches()[0] if n else None)
        epochs.append((batches[0], batches[1], watermark))
    left, right = (pa.concat_tables(parts) for parts in tables)
    query = replace(make_join(64, 64, run.seed), tables=(left, right), window_us=WINDOW_EPOCHS * EPOCH_US)
    return query, epochs


def apart(step: ChainStep) -> int:
    """Return the largest difference of the loads of neighbours."""
    return max(abs(a - b) for a, b in pairwise(step.loads))


def measure(run: Run) -> Verdict:
    query, epochs = script(run)
    block = run.sized(BLOCK, 8)
    run.announce(f"{len(epochs)} epochs")
    steps = list(replay(query, Chain(WORKERS, block), epochs))
    run.check("balance", query.expected, sum(step.results for step in steps))
    for number, step in enumerate(steps[: len(epochs)]):
        for place, load in enumerate(step.loads):
            run.add(epoch=number, series=f"worker {place + 1}", load=load)
        run.add(epoch=number, series="largest", apart=apart(step), bound=2 * block)
    begun = 0
    for phase in PHASES:
        named = {"phase": phase.name, "epochs": phase.epochs, "arrivals": f"{phase.left}, {phase.right}"}
        run.add(**summarise(steps[begun : begun + phase.epochs], block), **named)
        begun += phase.epochs
    run.parameters = {
        "workers": WORKERS,
        "block": block,
        "threshold": block,
        "tuples_of_a_stream_and_epoch": run.sized(PER_EPOCH, 16),
        "window (epochs)": WINDOW_EPOCHS,
        "judged": f"from the {SETTLED + 1}th epoch of a phase on",
    }
    by = {row["phase"]: row for row in run.rows if "phase" in row}
    ratio = by["silence"]["apart_most"] / (2 * block)
    facts = {
        f"in silence, neighbours differ by threshold + block ({2 * block:,}) times at most": ratio,
        "the largest differences are": {name: row["apart_most"] for name, row in by.items()},
        "the means as shares of the mean load are": {
            name: row["apart_mean"] / row["mean_load"] for name, row in by.items()
        },
    }
    remark = (
        "while tuples flow, a difference is what is under way: a load that a worker knows is an epoch old, a"
        " block takes another epoch to arrive, and a subindex expires at once"
    )
    holds = min(row["within"] for row in by.values()) == 1
    return Verdict(holds, ratio, facts, remark, partly=by["silence"]["within"] == 1)


def summarise(steps: list[ChainStep], block: int) -> Row:
    settled = [apart(step) for step in steps[SETTLED:] or steps]
    return {
        "mean_load": float(np.mean([step.loads for step in steps])),
        "apart_mean": float(np.mean(settled)),
        "apart_most": max(settled),
        "within": float(np.mean([one <= 2 * block for one in settled])),
        "moved": total(steps, "forwarded") / len(steps),
    }


FIGURE = Figure(
    measure,
    "largest difference in silence / (threshold + block)",
    (
        Panel("loads", "epoch", "load", "series"),
        Panel("dashed: threshold + block", "epoch", "apart", "series", beside="bound"),
    ),
    "phase; epochs; arrivals; mean_load; apart_mean; apart_most; within; moved",
    is_in_table=lambda row: "phase" in row,
)
