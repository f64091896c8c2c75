"""Arrivals that double midway, against a clock: rings of a fixed length, and one that follows the rate.

Epochs follow each other as a clock says on which a single node is loaded to ``LOAD`` at first: one that takes
longer than its tuples took to come makes the next one longer. The ring with adaptation gives new slices to as
many nodes as have ``tuples_per_node`` of an epoch's tuples to take each: two of them at first, more when
tuples come faster, and more when it falls behind and its epochs grow.
"""

import statistics
from collections.abc import Iterator
from itertools import count

import numpy as np

from bench.figures.figure import Check, Measured, Row, Verdict, yes_or_no
from bench.psp.images import SECOND, START_US, Streams, Workload, streams_of
from bench.psp.replay import Epoch, Replay, gathered, models, timed
from bench.psp.sweeps import NODES, Setup, given, spelled
from thetastream.models import Multiway, Ring
from thetastream.windows import Rows

LOAD = 0.6
"""Of a single node before arrivals double. Twice the arrivals meet twice the window: four times the pairs."""
STEP_US = 12 * SECOND
"""Shortest epoch."""
AT_FIRST = 2
"""Nodes that the ring with adaptation uses before arrivals double, and the one without at any time."""
ADAPTIVE = "Ring, adaptation on"
FIXED = f"Ring, {AT_FIRST}"
SLICE = Rows(4)


def doubling(setup: Setup) -> Measured:
    """Response times before arrivals double and at the end."""
    work = setup.doubling
    streams = streams_of(work)
    # 1. The clock.
    middle = START_US + work.tuples // 3 * SECOND
    one = gathered(streams, timed(streams, Ring(1, SLICE), count(START_US + STEP_US, STEP_US)))
    before = [
        epoch.busiest_ms for epoch in one.epochs if START_US + work.window_us < epoch.until_us <= middle
    ]
    ms_per_second = statistics.mean(before) / (STEP_US / SECOND) / LOAD
    # 2. Runs against it.
    rows, checks, late = [], [], {}
    for label, model in settings(setup, work).items():
        setup.announce(f"doubling, {label}")
        run, ends = against_the_clock(work, model, ms_per_second)
        checks.append(Check(f"doubling, {label}", run.expected, len(run.found)))
        waits = (ends[run.found] - run.came_us) / SECOND
        rows += rows_of(label, model, streams, run, waits)
        share = shares(streams, run.came_us)
        late[label] = float(waits[share > 0.9].mean()) / float(waits[(share > 0.25) & (share < 0.5)].mean())
    # 3. What they say.
    ratio = late[FIXED] / late[ADAPTIVE]
    used = [row["nodes_storing"] for row in rows if row["model"] == ADAPTIVE]
    text = (
        f"response times at the end are those before arrivals doubled times {spelled(late)}; a ring of "
        f"{AT_FIRST} nodes slows down {ratio:.2f} times as much as one that begins with about as many and "
        f"follows the rate, to {max(used):.1f} nodes that take new slices"
    )
    holds = late[FIXED] > 2 * late[ADAPTIVE]
    return Measured(
        rows,
        Verdict(yes_or_no(holds and late[ADAPTIVE] < 2, ratio > 1), ratio, text),
        checks,
        {**given(work), "load_of_one_node_before": LOAD, "ms_per_second_of_event_time": ms_per_second},
    )


def settings(setup: Setup, work: Workload) -> dict[str, Multiway]:
    """Fixed lengths, adaptation, and the ring's rivals."""
    per_node = work.streams * STEP_US // SECOND // AT_FIRST * 4 // 3
    found: dict[str, Multiway] = {
        f"Ring, {n}": Ring(n, SLICE) for n in sorted({*setup.lengths, AT_FIRST, NODES})
    }
    found[ADAPTIVE] = Ring(NODES, SLICE, tuples_per_node=per_node)
    rivals = models(work, NODES).items()
    return found | {f"{name}, {NODES}": model for name, model in rivals if name != "Ring"}


def shares(streams: Streams, times_us: np.ndarray) -> np.ndarray:
    """Where times lie between the first and the last arrival."""
    return (times_us - START_US) / (streams.end_us - START_US)


def rows_of(label: str, model: Multiway, streams: Streams, run: Replay, waits: np.ndarray) -> Iterator[Row]:
    """A row for each tenth of event time that results came in."""
    tenths = (shares(streams, run.came_us) * 10).astype(int)
    storing = np.array([sum(node.stored > 0 for node in epoch.nodes) for epoch in run.epochs])
    for tenth in range(10):
        inside = tenths == tenth
        if inside.any():
            yield {
                "model": label,
                "setting": repr(model),
                "share": (tenth + 0.5) / 10,
                "response_s": float(waits[inside].mean()),
                "nodes_storing": float(storing[run.arrived[inside]].mean()),
                "results": int(inside.sum()),
            }


def against_the_clock(work: Workload, model: Multiway, ms_per_second: float) -> tuple[Replay, np.ndarray]:
    """A run whose epochs begin when the last one is done; per epoch when it ends."""
    streams = streams_of(work)
    clock, ends = START_US + STEP_US, []

    def cuts() -> Iterator[int]:
        while True:
            yield clock

    def epochs() -> Iterator[tuple[Epoch, np.ndarray]]:
        nonlocal clock
        for epoch, came in timed(streams, model, cuts()):
            done = clock + round(epoch.busiest_ms / ms_per_second * SECOND)
            ends.append(done)
            clock = max(done, clock + STEP_US)
            yield epoch, came

    run = gathered(streams, epochs())
    return run, np.array(ends)
