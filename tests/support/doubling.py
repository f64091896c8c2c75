"""A ring of three streams whose arrivals double while it runs (PSP, figures 8g and 8h), against a clock that
counts comparisons.

Each node has a core, and a comparison takes a fixed time. So an epoch takes as long as its busiest node, and
the next epoch brings what has arrived in the meantime. Arrivals that double cause four times the comparisons
of first hops.
"""

from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.controlled_run import ControlledRun
from tests.support.graphs import side
from thetastream.core.keys import Int64s
from thetastream.core.spans import Rows
from thetastream.engine.multiway.graph import Edge, Ends, GraphPredicate, JoinGraph
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import Ring
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.request import Request

SECOND = 1_000_000
WINDOW_S, EPOCH_S = 60, 2
RATE = 3
"""The number of tuples of each stream in a second, before arrivals double."""
KEYS = 100
"""One pair of neighbouring streams in a hundred joins."""
DOUBLES_S, END_S = 90, 180
"""When arrivals double, and when the run ends."""


class Epoch(NamedTuple):
    """One epoch of a run."""

    times: Int64s
    """The event times of its tuples."""
    began_us: int
    comparisons: int
    """The comparisons of its busiest node."""
    generations: int
    """The number of generations of nodes."""


def equal(**streams: pa.Array) -> pa.Array:
    """Whether the keys of two tuples are equal."""
    left, right = streams.values()
    return pc.equal(left.x, right.x).to_numpy(zero_copy_only=False)


def build_graph() -> JoinGraph:
    """Build a join in which all tuples lie in one window, and a Python function compares neighbours."""
    span = WINDOW_S * SECOND
    edges = {pair: Edge(window=Ends(-span, span)) for pair in combinations(range(3), 2)}
    predicates = [
        GraphPredicate("equal", equal, tuple((n, "abc"[n], (("x", f"s{n}k0"),)) for n in (left, left + 1)))
        for left in range(2)
    ]
    return JoinGraph(tuple(map(side, range(3))), edges, tuple(predicates))


@cache
def draw_stream(stream: int) -> pa.RecordBatch:
    """Draw the tuples of a stream, whose arrivals double."""
    random = np.random.default_rng(stream)
    n = RATE * (2 * END_S - DOUBLES_S)
    gaps = random.exponential(SECOND / RATE, n)
    gaps[RATE * DOUBLES_S :] /= 2
    columns = [np.arange(n), np.cumsum(gaps).astype(np.int64), random.integers(0, KEYS, n), np.zeros(n, int)]
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=list(side(stream).columns))


def run_ring(load: float, before: int, after: int, moves_tuples: bool) -> tuple[list[Epoch], float]:
    """Run a ring whose nodes have this ``load`` each until arrivals double, and ask for more nodes two epochs
    later.

    Return the epochs, and the microseconds of a comparison.
    """
    model = Ring(before, Rows(8), moves_tuples=moves_tuples)
    spec = build_multiway_spec(build_graph(), ((1, 2), (2, 0), (1, 0)), model)
    run = ControlledRun(spec, model, Rules(64, only_sizes=True))
    streams = [draw_stream(stream) for stream in range(3)]
    times = [batch.column(1).to_numpy() for batch in streams]
    epochs: list[Epoch] = []
    begun, clock, watermark, cost_us = [0] * 3, EPOCH_S * SECOND, None, 0.0
    while clock < END_S * SECOND:
        ends = [int(np.searchsorted(arrived, clock)) for arrived in times]
        new = [slice(a, b) for a, b in zip(begun, ends, strict=True)]
        if clock > (DOUBLES_S + 2 * EPOCH_S) * SECOND and not run.requests:
            run.put(Request(sizes={"nodes": after}))
        list(
            run.epoch(
                [streams[n].slice(one.start, one.stop - one.start) for n, one in enumerate(new)], watermark
            )
        )
        busiest = max(run.counters[slot].candidates for slot in run.plan.slots)
        tuples = np.concatenate([times[n][one] for n, one in enumerate(new)])
        epochs.append(Epoch(tuples, clock, busiest, len(run.plan.membership)))
        if clock >= DOUBLES_S * SECOND and not cost_us:
            steady = [one.comparisons for one in epochs if one.began_us > WINDOW_S * SECOND]
            cost_us = load * EPOCH_S * SECOND / float(np.mean(steady))
        watermark, begun = clock - 1, ends
        clock = max(clock + EPOCH_S * SECOND, clock + int(busiest * cost_us))
    return epochs, cost_us


def measure_responses(epochs: list[Epoch], cost_us: float, per_window: int = 6) -> list[float]:
    """Measure the mean response time in each part of a window since arrivals doubled, divided by that before.

    A result of three streams leaves in the epoch after the one that brings its last tuple.
    """
    ended = [one.began_us + one.comparisons * cost_us for one in epochs]
    times = np.concatenate([one.times for one in epochs[:-1]])
    waits = np.concatenate([end - one.times for one, end in zip(epochs[:-1], ended[1:], strict=True)])
    part = WINDOW_S * SECOND // per_window
    doubles, end = DOUBLES_S * SECOND, epochs[-1].began_us - 2 * part
    before = waits[(times >= WINDOW_S * SECOND) & (times < doubles)].mean()
    starts = range(doubles, end, part)
    return [float(waits[(times >= start) & (times < start + part)].mean() / before) for start in starts]
