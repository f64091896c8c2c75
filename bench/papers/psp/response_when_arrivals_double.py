"""Response time when arrivals double midway (PSP, figures 8g and 8h).

When arrivals double, a ring of fixed length falls behind, and one that grows keeps its response time.

A clock, on which a single node is loaded to ``LOAD`` at first, starts the epochs. Each node has a core, and a
comparison takes a fixed time, so an epoch takes as long as its busiest node. An epoch that takes longer than
its tuples took to arrive makes the next epoch longer. Nothing else is timed, so a run repeats exactly.

Rings adapt in three ways. All of them begin with ``AT_FIRST`` nodes.

- By the rate, with ``tuples_per_node``: new slices go to more nodes, at most ``FEW``, when an epoch has more
  tuples. It has more when they come faster, and when the ring falls behind and its epochs grow.
- By a request for ``GROWN`` nodes, an epoch after arrivals have doubled. Stored tuples stay where they are
  until they expire (the paper's passive adjustment).
- By the same request, and stored tuples move to the new nodes (its aggressive relocation).
"""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.psp.growing_ring import GrowingRing
from bench.papers.psp.images import SECOND, START_US, Streams, Workload, streams_of
from bench.papers.psp.replay import EPOCH_US, SLICE, Epoch, Replay, models, run_epochs, run_join, warm_up
from bench.papers.psp.sweeps import FEW, TRUTH, given
from thetastream.models import Multiway, Ring

WORK = Workload(tuples=540, pixels=5_000, doubles=True)
LOAD = 0.6
"""The load of a single node before arrivals double. First hops then have four times the comparisons, and
second hops eight times."""
LENGTHS = (1, 2, 3, 4, 14)
AT_FIRST = 2
"""Number of nodes that rings with adaptation use at first, and the ring without it always."""
GROWN = LENGTHS[-1]
"""Number of nodes that are asked for. It is one of the paper's lengths."""
BY_RATE = "Ring, adaptation on"
FIXED = f"Ring, {AT_FIRST}"
STAYS, MOVES = (f"Ring, {AT_FIRST} to {GROWN}, tuples {what}" for what in ("stay", "move"))
GROWING = {STAYS: Ring(AT_FIRST, SLICE), MOVES: Ring(AT_FIRST, SLICE, moves_tuples=True)}
MOST_SLOWER = 1.3
"""The target: the response time of a ring that grows, at most, divided by that before."""


def measure(run: Run) -> Verdict:
    work = replace(WORK, seed=run.seed).scaled(run.scale)
    streams = streams_of(work)
    warm_up()
    # 1. Set the clock.
    middle = START_US + work.tuples // 3 * SECOND
    first = START_US + work.window_us
    alone = list(run_epochs(streams, Ring(1, SLICE), count(START_US + EPOCH_US, EPOCH_US)))
    before = [epoch.most_comparisons for epoch in alone if first < epoch.until_us <= middle]
    comparison_us = LOAD * EPOCH_US / statistics.mean(before)
    # 2. Run every model against it.
    late, longest, cpu_us = {}, {}, {"alone": measure_comparison_us(alone)}
    fixed = list_fixed(run, work)
    ways = {label: partial(run_epochs, streams, model) for label, model in fixed.items()}
    ways |= {
        label: partial(run_growing, streams, model, middle + EPOCH_US) for label, model in GROWING.items()
    }
    for label, model in {**fixed, **GROWING}.items():
        run.announce(f"doubling, {label}")
        found, ends = against_the_clock(streams, ways[label], comparison_us)
        run.check(f"doubling, {label}", found.expected, len(found.found))
        waits = (ends[found.found] - found.came_us) / SECOND
        share = (found.came_us - START_US) / (streams.end_us - START_US)
        add_tenths(run, label, model, found, waits, (share * 10).astype(int))
        usual = float(waits[(share > 0.25) & (share < 0.5)].mean())
        late[label] = float(waits[share > 0.9].mean()) / usual
        longest[label] = max(run.rows.where(model=label).by("share", "response_s").values()) / usual
        cpu_us[label] = measure_comparison_us(found.epochs)
    run.parameters = {
        **given(work),
        "load_of_one_node_before": LOAD,
        "comparisons_per_second_of_event_time": SECOND / comparison_us,
    }
    return judge(run, late, longest, cpu_us[MOVES] / cpu_us["alone"])


def judge(run: Run, late: dict[str, float], longest: dict[str, float], overhead: float) -> Verdict:
    """Compare the response times."""
    ratio = late[FIXED] / late[MOVES]
    used = max(row["nodes_storing"] for row in run.rows.where(model=BY_RATE))
    facts = {
        "response times at the end are those before arrivals doubled times": late,
        "and the longest ones, in a tenth of event time,": {
            name: longest[name] for name in (FIXED, BY_RATE, STAYS, MOVES)
        },
        f"{FIXED} slows down as much as {MOVES} times": ratio,
        f"{BY_RATE} gives new slices to at most": used,
        f"a comparison of {MOVES}, takes the CPU time of one on a single node times": overhead,
    }
    return Verdict(ratio > 2 and longest[MOVES] <= MOST_SLOWER, ratio, facts, partly=ratio > 1)


def list_fixed(run: Run, work: Workload) -> dict[str, Multiway]:
    """List the models whose nodes do not change."""
    per_node = work.streams * EPOCH_US // SECOND // AT_FIRST * 4 // 3
    lengths = sorted({*run.some(LENGTHS), AT_FIRST, FEW})
    found: dict[str, Multiway] = {f"Ring, {n}": Ring(n, SLICE) for n in lengths}
    found[BY_RATE] = Ring(FEW, SLICE, tuples_per_node=per_node)
    rivals = models(work, FEW).items()
    return found | {f"{name}, {FEW}": model for name, model in rivals if name != "Ring"}


def measure_comparison_us(epochs: list[Epoch]) -> float:
    """Measure the CPU time of a comparison at the busiest nodes, with all other work of these nodes."""
    return 1e3 * sum(one.busiest_ms for one in epochs) / sum(one.most_comparisons for one in epochs)


def add_tenths(
    run: Run, label: str, model: Multiway, found: Replay, waits: np.ndarray, tenths: np.ndarray
) -> None:
    """Add a row for each tenth of event time in which results came."""
    storing = np.array([sum(node.stored > 0 for node in epoch.units) for epoch in found.epochs])
    for tenth in np.unique(tenths[tenths < 10]):
        inside = tenths == tenth
        run.add(
            model=label,
            setting=repr(model),
            share=float(tenth + 0.5) / 10,
            response_s=float(waits[inside].mean()),
            nodes_storing=float(storing[found.arrived[inside]].mean()),
            results=int(inside.sum()),
        )


def run_growing(streams: Streams, model: Ring, asks_us: int, cuts_us: Iterator[int]) -> Iterator[Epoch]:
    """Run epochs of a ring that is asked for ``GROWN`` nodes from ``asks_us`` on."""
    ring = GrowingRing(streams, model)
    for epoch in run_join(streams, ring, cuts_us):
        yield epoch
        if epoch.until_us >= asks_us:
            ring.ask(GROWN)


def against_the_clock(
    streams: Streams, run_cuts: Callable[[Iterator[int]], Iterator[Epoch]], comparison_us: float
) -> tuple[Replay, np.ndarray]:
    """Run epochs that begin when the epoch before is done; return the run and the end of each epoch."""
    clock, ends, epochs = START_US + EPOCH_US, [], []

    def follow_clock() -> Iterator[int]:
        while True:
            yield clock

    for epoch in run_cuts(follow_clock()):
        epochs.append(epoch)
        ends.append(clock + round(epoch.most_comparisons * comparison_us))
        clock = max(ends[-1], clock + EPOCH_US)
    return Replay(epochs, streams.expected), np.array(ends)


TITLE = "a single node is loaded to 0.6 before arrivals double"
FIGURE = Figure(
    measure,
    "end / before doubling, adaptation off / on",
    (Panel(TITLE, "share", "response_s", "model", log="y"),),
    "model; share; response_s; nodes_storing; results",
    is_in_table=lambda row: row["share"] in (0.35, 0.55, 0.65, 0.95),
    truth=TRUTH,
)
