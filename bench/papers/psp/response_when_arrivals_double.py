"""Response time when arrivals double midway (PSP, figures 8g and 8h).

When arrivals double, a ring of fixed length falls behind, and one that grows keeps its response time.

A clock, on which a single node is loaded to ``LOAD`` at first, starts the epochs. An epoch that takes longer
than its tuples took to arrive makes the next epoch longer. The ring with adaptation gives new slices to as
many nodes as have ``tuples_per_node`` of an epoch's tuples to take each: two of them at first, more when
tuples come faster, and more when it falls behind and its epochs grow.
"""

import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.psp.images import SECOND, START_US, Streams, Workload, streams_of
from bench.papers.psp.replay import EPOCH_US, SLICE, Replay, models, run_epochs, warm_up
from bench.papers.psp.sweeps import FEW, TRUTH, given
from thetastream.models import Multiway, Ring

WORK = Workload(tuples=540, pixels=5_000, doubles=True)
LOAD = 0.6
"""The load of a single node before arrivals double. Twice the arrivals give four times the pairs."""
LENGTHS = (1, 2, 3, 4)
AT_FIRST = 2
"""Number of nodes that the ring with adaptation uses at first, and the ring without it always."""
ADAPTIVE = "Ring, adaptation on"
FIXED = f"Ring, {AT_FIRST}"


def measure(run: Run) -> Verdict:
    work = replace(WORK, seed=run.seed).scaled(run.scale)
    streams = streams_of(work)
    warm_up()
    # 1. Set the clock.
    middle = START_US + work.tuples // 3 * SECOND
    first = START_US + work.window_us
    alone = run_epochs(streams, Ring(1, SLICE), count(START_US + EPOCH_US, EPOCH_US))
    before = [epoch.busiest_ms for epoch in alone if first < epoch.until_us <= middle]
    ms_per_second = statistics.mean(before) / (EPOCH_US / SECOND) / LOAD
    # 2. Run every model against it.
    late = {}
    for label, model in settings(run, work).items():
        run.announce(f"doubling, {label}")
        found, ends = against_the_clock(streams, model, ms_per_second)
        run.check(f"doubling, {label}", found.expected, len(found.found))
        waits = (ends[found.found] - found.came_us) / SECOND
        share = (found.came_us - START_US) / (streams.end_us - START_US)
        add_tenths(run, label, model, found, waits, (share * 10).astype(int))
        late[label] = float(waits[share > 0.9].mean()) / float(waits[(share > 0.25) & (share < 0.5)].mean())
    run.parameters = {
        **given(work),
        "load_of_one_node_before": LOAD,
        "ms_per_second_of_event_time": ms_per_second,
    }
    # 3. Compare the response times.
    ratio = late[FIXED] / late[ADAPTIVE]
    used = max(row["nodes_storing"] for row in run.rows.where(model=ADAPTIVE))
    facts = {
        "response times at the end are those before arrivals doubled times": late,
        f"{FIXED} slows down as much as {ADAPTIVE} times": ratio,
        "the latter begins with about as many nodes, and gives new slices to at most": used,
    }
    return Verdict(ratio > 2 and late[ADAPTIVE] < 2, ratio, facts, partly=ratio > 1)


def settings(run: Run, work: Workload) -> dict[str, Multiway]:
    per_node = work.streams * EPOCH_US // SECOND // AT_FIRST * 4 // 3
    lengths = sorted({*run.some(LENGTHS), AT_FIRST, FEW})
    found: dict[str, Multiway] = {f"Ring, {n}": Ring(n, SLICE) for n in lengths}
    found[ADAPTIVE] = Ring(FEW, SLICE, tuples_per_node=per_node)
    rivals = models(work, FEW).items()
    return found | {f"{name}, {FEW}": model for name, model in rivals if name != "Ring"}


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


def against_the_clock(streams: Streams, model: Multiway, ms_per_second: float) -> tuple[Replay, np.ndarray]:
    """Run epochs that begin when the epoch before is done; return the run and the end of each epoch."""
    clock, ends, epochs = START_US + EPOCH_US, [], []

    def follow_clock() -> Iterator[int]:
        while True:
            yield clock

    for epoch in run_epochs(streams, model, follow_clock()):
        epochs.append(epoch)
        ends.append(clock + round(epoch.busiest_ms / ms_per_second * SECOND))
        clock = max(ends[-1], clock + EPOCH_US)
    return Replay(epochs, streams.expected), np.array(ends)


TITLE = "a single node is loaded to 0.6 before arrivals double"
FIGURE = Figure(
    measure,
    "end / before doubling, adaptation off / on",
    (Panel(TITLE, "share", "response_s", "model", log="y"),),
    "model; share; response_s; nodes_storing; results",
    is_in_table=lambda row: row["share"] in (0.35, 0.65, 0.95),
    truth=TRUTH,
)
