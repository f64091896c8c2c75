"""Loads of all workers over time: a steady input, a burst, silence, one stream alone.

A worker hands a block on when its load exceeds what it knows of its neighbour's, plus what is under way to
it, by more than the threshold. A message takes an epoch. So loads of neighbours differ by at most threshold +
block once nothing moves; while tuples flow, by those that are under way as well.
"""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bench.esj.blocks import WORKERS
from bench.esj.inputs import Keyed, drawn, keyed
from bench.esj.replay import Epoch, Step, replay
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.query import START_US
from thetastream.models import Chain
from thetastream.types import Side

PER_EPOCH, BLOCK, WINDOW_EPOCHS = 512, 128, 16
"""Tuples of a stream, of a block, epochs of a window; the threshold is a block."""
EPOCH_US = 1_000_000
SETTLED = 4
"""Epochs of a phase after which it is judged: a message has been to the end of the chain."""


@dataclass(frozen=True)
class Phase:
    """A stretch of input."""

    name: str
    epochs: int
    left: int = 0
    right: int = 0
    """Times ``PER_EPOCH``."""


PHASES = (
    Phase("filling", 16, 1, 1),
    Phase("steady", 20, 1, 1),
    Phase("burst", 4, 6, 6),
    Phase("after the burst", 12, 1, 1),
    Phase("silence", 12),
    Phase("left alone", 12, 1, 0),
    Phase("steady again", 20, 1, 1),
)


def script(setup: Setup, phases: tuple[Phase, ...]) -> tuple[Keyed, list[Epoch]]:
    """The query, and the input epoch by epoch; an epoch is a second of event time."""
    epochs: list[Epoch] = []
    newest: dict[Side, int] = {}
    tables: tuple[list[pa.Table], list[pa.Table]] = ([], [])
    per_epoch = setup.sized(PER_EPOCH, 16)
    for number, phase in enumerate(each_epoch(phases)):
        watermark = min(newest.values()) - 1 if len(newest) == 2 else None
        batches = []
        for side, times in zip(Side, (phase.left, phase.right), strict=True):
            n = times * per_epoch
            table = drawn(np.random.default_rng([setup.seed, side, number]), n)
            ts = START_US + number * EPOCH_US + np.arange(n) * EPOCH_US // max(1, n)
            table = table.append_column("ts", pa.array(ts, pa.timestamp("us", tz="UTC")))
            tables[side].append(table)
            if n:
                newest[side] = int(ts[-1])
            batches.append(table.to_batches()[0] if n else None)
        epochs.append((batches[0], batches[1], watermark))
    left, right = (pa.concat_tables(parts) for parts in tables)
    query = replace(keyed(64, 64, setup.seed), tables=(left, right), window_us=WINDOW_EPOCHS * EPOCH_US)
    return query, epochs


def each_epoch(phases: tuple[Phase, ...]) -> list[Phase]:
    """The phase of every epoch."""
    return [phase for phase in phases for _ in range(phase.epochs)]


def apart(step: Step) -> int:
    """The largest difference of neighbours' loads."""
    return max(abs(a - b) for a, b in pairwise(step.loads))


def balance(setup: Setup) -> Measured:
    """One run through all phases."""
    query, epochs = script(setup, PHASES)
    block = setup.sized(BLOCK, 8)
    setup.announce(f"balance: {len(epochs)} epochs")
    steps = list(replay(query.chain(Chain(WORKERS, block)), epochs))
    check = Check("balance", query.expected(), sum(step.results for step in steps))
    rows: list[Row] = []
    for number, step in enumerate(steps[: len(epochs)]):
        for place, load in enumerate(step.loads):
            rows.append({"epoch": number, "series": f"worker {place + 1}", "load": load})
        rows.append({"epoch": number, "series": "largest", "apart": apart(step), "bound": 2 * block})
    begun = 0
    for phase in PHASES:
        rows.append({**summed(steps[begun : begun + phase.epochs], block), **about(phase)})
        begun += phase.epochs
    parameters = {
        "workers": WORKERS,
        "block": block,
        "threshold": block,
        "tuples_of_a_stream_and_epoch": setup.sized(PER_EPOCH, 16),
        "window (epochs)": WINDOW_EPOCHS,
        "judged": f"from the {SETTLED + 1}th epoch of a phase on",
    }
    return Measured(rows, verdict(rows, block), [check], parameters)


def about(phase: Phase) -> Row:
    """A row's first columns."""
    return {"phase": phase.name, "epochs": phase.epochs, "arrivals": f"{phase.left}, {phase.right}"}


def summed(steps: list[Step], block: int) -> Row:
    """What the loads of a phase were."""
    settled = [apart(step) for step in steps[SETTLED:] or steps]
    return {
        "mean_load": float(np.mean([step.loads for step in steps])),
        "apart_mean": float(np.mean(settled)),
        "apart_most": max(settled),
        "within": float(np.mean([one <= 2 * block for one in settled])),
        "moved": float(np.mean([sum(worker.forwarded for worker in step.workers) for step in steps])),
    }


def verdict(rows: list[Row], block: int) -> Verdict:
    """Phase by phase."""
    by = {row["phase"]: row for row in rows if "phase" in row}
    silent = by["silence"]
    ratio = silent["apart_most"] / (2 * block)
    spans = ", ".join(
        f"{name} {row['apart_most']:,} ({row['apart_mean'] / row['mean_load']:.0%} of the mean load)"
        for name, row in by.items()
    )
    text = (
        f"neighbours differ by at most {ratio:.2f} of threshold + block ({2 * block:,}) once silence has"
        f" settled; by phase the most (and the mean) is: {spans}; while tuples flow a difference is what is"
        " under way, because a load that a worker knows is an epoch old and a block takes another to arrive,"
        " and a subindex expires at once"
    )
    holds = [row["within"] for row in by.values()]
    return Verdict(yes_or_no(min(holds) == 1, silent["within"] == 1), ratio, text)


FIGURE = Figure(
    name="load-over-time",
    title="Loads of the workers over time",
    source="ESJ, load balancing by MP-2PF",
    claim="Loads of neighbours stay within the threshold and a block of each other, whatever the input does.",
    ratio_of="largest difference in silence / (threshold + block)",
    panels=(
        Panel("loads", "epoch", "load", "series", ("epoch", "stored tuples")),
        Panel(
            "dashed: threshold + block",
            "epoch",
            "apart",
            "series",
            ("epoch", "largest difference of neighbours"),
            beside="bound",
        ),
    ),
    columns=(
        Column("phase", "phase"),
        Column("epochs", "epochs"),
        Column("arrivals (left, right)", "arrivals"),
        Column("mean load", "mean_load", "{:,.0f}"),
        Column("difference, mean", "apart_mean", "{:,.0f}"),
        Column("difference, most", "apart_most", "{:,}"),
        Column("within the bound", "within", "{:.0%}"),
        Column("tuples moved/epoch", "moved", "{:,.0f}"),
    ),
    measure=balance,
    is_in_table=lambda row: "phase" in row,
    truth="a count in NumPy",
)
