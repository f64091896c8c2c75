"""Cost of an epoch against the block (ESJ, target function of the block size).

Small blocks cost messages, large ones an uneven load: the target function has its least between, and that
is where an epoch costs least.

The cost of an epoch is the CPU time of its slowest worker, letters included (``replay``). The figure compares
it with J, the target function of the block size, which is computed from the measurements of the worker at the
left end (``BlockCost``). The costs that do not depend on the block are added to J: they are the median of the
measured cost minus J. ``MESSAGE_S`` was fitted to this workload, so equal optima here do not test it on
another.
"""

from statistics import median

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import AUTO, BYTE_S, HASH_COLUMN, LOOK_S, MESSAGE_S, BlockCost
from bench.core.query import Query
from bench.core.rows import Row
from bench.papers.esj.inputs import make_join
from bench.papers.esj.letters import LetterCost, letter_cost
from bench.papers.esj.replay import ChainStep, replay
from thetastream.models import Chain
from thetastream.models.chain import EVEN

WORKERS = 4
WINDOW, PER_EPOCH = 1 << 14, 1 << 10
"""Number of tuples of a stream."""
EPOCHS, WARMUP = 34, 18
BLOCKS = tuple(1 << power for power in range(6, 16))
REPLAYS = 3
INDEX = "hash"
HEAVY = 0.9
"""An alpha with which messages weigh nine times as much as imbalance."""
NEAR = 1.15
"""Costs whose ratio is smaller count as equal, because CPU times of a shared machine vary as much."""


def run_chain(query: Query, block: int | str, epochs: int = EPOCHS, alpha: float = EVEN) -> list[ChainStep]:
    parts = (
        (left.drop_columns([HASH_COLUMN]), right.drop_columns([HASH_COLUMN]), watermark)
        for left, right, watermark in query.epochs(epochs)
    )
    return list(replay(query, Chain(WORKERS, block, alpha=alpha), parts))


def measure_block(run: Run, query: Query, block: int | str, alpha: float = EVEN) -> list[ChainStep]:
    """Measure one block: add its row, and return the measured epochs of a replay."""
    setting = "measured" if block != AUTO else "auto" if alpha == EVEN else f"auto, alpha {alpha}"
    run.announce(f"block {block}, {setting}")
    runs = [run_chain(query, block, alpha=alpha) for _ in range(REPLAYS)]
    run.check(f"block {block}, {setting}", query.expected, sum(step.results for step in runs[0]))
    # Disturbances only add time.
    cpu = np.min([[step.cpu_s for step in steps[WARMUP:EPOCHS]] for steps in runs], axis=0)
    steady = runs[0][WARMUP:EPOCHS]
    run.add(
        setting=setting,
        block=round(median(step.block[0] for step in steady)),
        epoch_ms=1e3 * float(cpu.max(axis=1).mean()),
        all_ms=1e3 * float(cpu.sum(axis=1).mean()),
        blocks_sent=float(np.mean([sum(step.blocks_sent) for step in steady])),
        spread=float(np.mean([max(step.loads) - min(step.loads) for step in steady])),
    )
    return steady


def measure(run: Run) -> Verdict:
    window, per_epoch = run.sized(WINDOW), run.sized(PER_EPOCH)
    query = make_join(per_epoch * EPOCHS, window, run.seed).by(INDEX)
    run_chain(query, BLOCKS[0])  # This run compiles the kernels.
    for block in BLOCKS:
        measure_block(run, query, block)
    steady = measure_block(run, query, AUTO)
    measure_block(run, query, AUTO, HEAVY)
    cost = mean_cost([step.costs[0] for step in steady if step.costs[0] is not None])
    *sized, auto, heavy = rows = list(run.rows)
    rest = median(row["epoch_ms"] - 1e3 * cost.total_s(row["block"]) for row in sized)
    for row in rows:
        row["model_ms"] = rest + 1e3 * cost.total_s(row["block"])
    found, predicted = min(sized, key=lambda row: row["epoch_ms"]), cost.find_best()
    least = found["epoch_ms"]
    there = float(np.interp(np.log(predicted), np.log(BLOCKS), [row["epoch_ms"] for row in sized]))
    run.add(setting="predicted", block=predicted, epoch_ms=there)
    run.add(setting="found", block=found["block"], epoch_ms=least)
    block_s, letters = per_block(sized), letter_cost()
    moved = tuple(float(f"{term:.3g}") for term in vars(cost).values())
    run.parameters = given(window, per_epoch, letters) | {
        "moved, probes, look share, bytes": moved,
        "a block, measured (us)": round(1e6 * block_s),
    }
    ratio = there / least
    near = [row["block"] for row in sized if row["epoch_ms"] < NEAR * least]
    first, last = sized[0], sized[-1]
    facts = {
        "J has its least at a block of": predicted,
        "the least cost is measured at": found["block"],
        f"blocks that cost within {NEAR - 1:.0%} of it:": near,
        "an epoch with the predicted block costs the least times": ratio,
        "tuples of the blocks that workers choose themselves, at the left end:": auto["block"],
        "an epoch with them costs the least times": auto["epoch_ms"] / least,
        f"the block that workers choose with alpha {HEAVY}:": heavy["block"],
        "an epoch with it costs the least times": heavy["epoch_ms"] / least,
        "other blocks cost the least times": {row["block"]: row["epoch_ms"] / least for row in (first, last)},
        "µs that a block costs in all workers:": 1e6 * block_s,
        "µs of it for its letter and the acknowledgement:": 1e6 * letters.message_s,
        f"for blocks of {first['block']}, J and the rest say ms of an epoch": first["model_ms"],
        "measured are": first["epoch_ms"],
    }
    remark = "the constant a of J was fitted to this workload"
    is_inside = first["epoch_ms"] > NEAR * least
    has_level = 2 / 3 < first["model_ms"] / first["epoch_ms"] < 3 / 2
    return Verdict(is_inside and ratio < NEAR and has_level, ratio, facts, remark, partly=ratio < 1.5)


def given(window: int, per_epoch: int, letters: LetterCost) -> Row:
    """Return the setting, and the constants of J beside the measured ones."""
    return {
        "workers": WORKERS,
        "index": INDEX,
        "tuples_of_a_stream_and_epoch": per_epoch,
        "window": window,
        "MESSAGE_S (us)": 1e6 * MESSAGE_S,
        "its letters, measured (us)": round(1e6 * letters.message_s),
        "BYTE_S (ns)": 1e9 * BYTE_S,
        "a byte, measured (ns)": round(1e9 * letters.byte_s, 1),
        "a file, measured (us)": round(1e6 * letters.file_s),
        "LOOK_S (ns)": 1e9 * LOOK_S,
    }


def mean_cost(costs: list[BlockCost]) -> BlockCost:
    return BlockCost(*np.mean([list(vars(cost).values()) for cost in costs], axis=0).tolist())


def per_block(rows: list[Row]) -> float:
    """Compute the seconds of a block in all workers: the slope of the CPU time of epochs over their blocks.

    >>> per_block([{"blocks_sent": 10.0, "all_ms": 30.0}, {"blocks_sent": 0.0, "all_ms": 20.0}])
    0.001
    """
    slope, _ = np.polyfit([row["blocks_sent"] for row in rows], [row["all_ms"] for row in rows], 1)
    return round(float(slope) / 1e3, 9)


TITLE = "slowest of 4 workers; dashed: J and what no block changes"
FIGURE = Figure(
    measure,
    "predicted block / best of those tried, ms of an epoch",
    (
        Panel(TITLE, "block", "epoch_ms", "setting", log="x", beside="model_ms"),
        Panel("largest less smallest load", "block", "spread", "setting", log="x"),
    ),
    "setting; block; epoch_ms|slowest worker (ms/epoch); model_ms; all_ms; blocks_sent; spread",
)
