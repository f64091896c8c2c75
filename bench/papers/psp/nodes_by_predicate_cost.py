"""The number of nodes that is chosen, against the cost of a predicate (PSP, section 5.2).

The cost model finds the length of the ring with the least response latency, from rates, windows,
selectivities and the time to join a pair of tuples.

Three streams are joined by two predicates that take a known CPU time for each candidate, from 0.1 µs to 1 ms,
and by comparisons without a predicate. The paper assumes that all terms are known; here they are measured
where a user measures them. After a run of one node, the counters give what ``th.statistics`` reads: rates,
candidates of a tuple, and seconds of a candidate. Before any run, ``th.measure_predicate`` gives the seconds
of a candidate from sample rows, and selectivities are assumed. From both, ``nodes="auto"`` chooses a number
of nodes. Every number of nodes is then measured in one process. Its latency is that of the cost model with
the measured share of its time for which the busiest node works, because Spark's own times are constants
(``python -m bench calibrate``).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite, log
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import thetastream as th
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import (
    Bound,
    Dimension,
    Domain,
    Edge,
    Ends,
    GraphPredicate,
    HopOrders,
    JoinGraph,
    Key,
    LocalMultiway,
    MultiwayLoad,
    PredicateTime,
    Side,
    SideSpec,
    build_multiway_spec,
    choose_initial_slice,
    estimate_load,
    measure_statistics,
)
from bench.core.replay import Step, total
from bench.core.rows import Row
from bench.papers.psp.images import ALIASES, SECOND, START_US
from thetastream.lowering.query import Stream
from thetastream.lowering.selectivity import BAND, OTHER
from thetastream.models import Ring

NATIVE = "no predicate"
COSTS_S = (1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3)
LOADS = (0.3, 1.2, 2.4)
"""Seconds of predicates in a second of event time. They take turns over the costs."""
NATIVE_RATE = 40_000
"""Tuples of a second of each stream without a predicate."""
NODES = (1, 2, 4, 8, 16)
MOST = NODES[-1]
ORDERS: HopOrders = ((1, 2), (0, 2), (1, 0))
WINDOW_S, FILLED, MEASURED = 2, 2, 2
"""The window, and the epochs of a second each until it is full and after that."""
VALUES = 1 << 30
LONGEST_S, MOST_OVER = 60.0, 99.0
"""What stands for an infinite latency of the model, and for an infinite multiple of the best latency."""
NEAR = 1.1
"""The largest latency of a chosen number of nodes, as a multiple of the best one."""


@dataclass(frozen=True)
class Spinning:
    """A predicate that is true for values that are close, and takes a CPU time for each candidate."""

    seconds: float
    reach: int

    def __call__(self, a: Any, b: Any) -> npt.NDArray[np.bool_]:
        until = time.process_time() + len(a) * self.seconds
        found: npt.NDArray[np.bool_] = np.abs(np.asarray(a) - np.asarray(b)) <= self.reach
        while time.process_time() < until:
            pass
        return found


@dataclass(frozen=True)
class Condition:
    """A join of three streams, of which stream i is compared with stream i + 1."""

    cost_s: float | None
    """CPU seconds of the predicate for a candidate; None for a comparison without a predicate."""
    load: float

    @property
    def rate(self) -> int:
        """Tuples of a second of each stream.

        A tuple meets the stored tuples of one stream in its first hop, and each finds half a partner there.
        So both hops look at 3 W r**2 candidates each.
        """
        if self.cost_s is None:
            return NATIVE_RATE
        return max(4, round((self.load / self.cost_s / (6 * WINDOW_S)) ** 0.5))

    @property
    def reach(self) -> int:
        """The largest difference of values that join: half a partner of a tuple in a window."""
        return round(VALUES / (4 * self.rate))

    @property
    def name(self) -> str:
        return NATIVE if self.cost_s is None else f"{1e6 * self.cost_s:g} us"

    def graph(self) -> JoinGraph:
        sides = tuple(
            SideSpec(
                alias,
                (f"s{n}v", f"s{n}t"),
                keys=(Key(f"s{n}v", Domain.INT),),
                time=Key(f"s{n}t", Domain.INT),
            )
            for n, alias in enumerate(ALIASES[:3])
        )
        window = Ends(-WINDOW_S * SECOND, WINDOW_S * SECOND)
        edges, predicates = {}, []
        for pair in combinations(range(3), 2):
            is_tied = pair != (0, 2)
            band = Dimension(Side.LEFT, 0, Bound(0, -self.reach), Bound(0, self.reach))
            dimensions = (band,) if is_tied and self.cost_s is None else ()
            edges[pair] = Edge(dimensions=dimensions, window=window)
            if is_tied and self.cost_s is not None:
                columns = tuple((n, ALIASES[n], (("v", f"s{n}v"),)) for n in pair)
                predicates.append(GraphPredicate(self.name, self.make_call(pair), columns))
        return JoinGraph(sides, edges, tuple(predicates))

    def make_call(self, pair: tuple[int, int]) -> Callable[..., Any]:
        """Make the predicate over a pair of streams."""
        spin, (left, right) = Spinning(self.cost_s or 0.0, self.reach), (ALIASES[n] for n in pair)
        return lambda **sides: spin(sides[left].v, sides[right].v)

    def draw(self, seed: int) -> Iterator[tuple[list[pa.RecordBatch], int | None]]:
        """Draw the tuples of each epoch, and its watermark."""
        random = np.random.default_rng(seed)
        for epoch in range(FILLED + MEASURED):
            start = START_US + epoch * SECOND
            times = start + np.arange(self.rate) * SECOND // self.rate
            batches = [
                pa.RecordBatch.from_pydict(
                    {
                        f"s{n}v": random.integers(0, VALUES, self.rate),
                        f"s{n}t": times,
                    }
                )
                for n in range(3)
            ]
            yield batches, start - 1 if epoch else None


CONDITIONS = (
    Condition(None, 0.0),
    *(Condition(cost_s, LOADS[n % len(LOADS)]) for n, cost_s in enumerate(COSTS_S)),
)
STREAMS = tuple(Stream(alias, ()) for alias in ALIASES[:3])


def run_ring(condition: Condition, nodes: int, seed: int) -> tuple[list[Step], float]:
    """Run a ring; return its epochs with a full window, and the seconds of predicates in them."""
    slices = th.Rows(choose_initial_slice(condition.rate * WINDOW_S, nodes))
    ring = LocalMultiway(build_multiway_spec(condition.graph(), ORDERS, Ring(nodes, slices)))
    steps, clock = [], PredicateTime(time.process_time)
    for epoch, (batches, watermark) in enumerate(condition.draw(seed)):
        if epoch == FILLED:
            clock.seconds = 0.0
        step = Step(0)
        with clock.is_current():
            step.run(ring, batches, watermark)
        steps.append(step)
    return steps[FILLED:], clock.seconds


def read_statistics(condition: Condition, steps: list[Step], predicate_s: float) -> th.Statistics:
    """Read the statistics of a run as ``th.statistics`` does, from counters and progress."""
    streams = {alias: {"timely": condition.rate * MEASURED} for alias in ALIASES[:3]}
    n, work = condition.rate * MEASURED, {"candidates": total(steps, "candidates")}
    entry = {"join": "j", "left": n, "right": n, "streams": streams, **work}
    entry["predicate_us"] = round(1e6 * predicate_s)
    begun, ended = "2026-01-05T00:00:00Z", f"2026-01-05T00:00:{MEASURED:02}Z"
    progress = [{"batchId": 0, "timestamp": begun, "eventTime": {"min": begun, "max": ended}}]
    return measure_statistics([entry], progress)


def sample_statistics(condition: Condition, seed: int) -> th.Statistics:
    """Return the statistics of a user who knows the rates, and has measured the predicate on sample rows."""
    rates = dict.fromkeys(ALIASES[:3], float(condition.rate))
    if condition.cost_s is None:
        return th.Statistics(tuples_per_second=rates)
    marked = th.predicate(a=["v"], b=["v"])(lambda a, b: condition.make_call((0, 1))(a=a, b=b))
    rows = pa.table({"v": np.random.default_rng(seed).integers(0, VALUES, 100)})
    seconds = th.measure_predicate(marked, {"a": rows, "b": rows}, time.process_time)
    return th.Statistics(tuples_per_second=rates, seconds_per_candidate=seconds)


def estimate(condition: Condition, statistics: th.Statistics) -> MultiwayLoad:
    share = BAND if condition.cost_s is None else OTHER
    ties = [(frozenset(pair), share) for pair in ("ab", "bc")]
    return estimate_load(STREAMS, condition.graph(), ORDERS, ties, statistics)


def measure(run: Run) -> Verdict:
    lengths = run.some(NODES)
    for condition in run.some(CONDITIONS):
        run.announce(condition.name)
        measure_condition(run, condition, lengths)
    run.parameters = {
        "window (s)": WINDOW_S,
        "epochs measured": MEASURED,
        "seconds of predicates a second": LOADS,
    }
    measured, sampled = (
        {row["condition"]: row[f"{name}_over_best"] for row in run.rows if "best" in row}
        for name in ("measured", "sampled")
    )
    worst = max(measured.values())
    n_near = sum(ratio <= NEAR for ratio in measured.values())
    facts = {
        f"of {len(measured)} costs, the choice by measured statistics is within 10 % of the best for": n_near,
        "its latency is the best one times": measured,
        "chosen from the predicate on a sample, with assumed selectivities:": sampled,
        "chosen from what is assumed:": {
            row["condition"]: row["assumed_over_best"] for row in run.rows if "best" in row
        },
    }
    remark = "the latency is nearly flat around its least value, so that a load that is half off costs little"
    return Verdict(worst <= NEAR, worst, facts, remark, partly=worst <= 1.5)


def measure_condition(run: Run, condition: Condition, lengths: tuple[int, ...]) -> None:
    """Measure the busiest node of each length, and add a row for each and one for what is chosen."""
    busy: dict[int, float] = {}
    known = None
    for nodes in lengths:
        steps, predicate_s = run_ring(condition, nodes, run.seed)
        results = total(steps, "matched")
        # Disturbances only add time, so the least of the epochs counts.
        busy[nodes] = min(max(step.cpu_s) for step in steps)
        if known is None:
            known, expected = read_statistics(condition, steps, predicate_s), results
        run.check(f"{condition.name}, {nodes} nodes", expected, results)
    assert known is not None
    kinds = {
        "measured": known,
        "sampled": sample_statistics(condition, run.seed),
        "assumed": th.Statistics(tuples_per_second=known.tuples_per_second),
    }
    loads = {name: estimate(condition, statistics) for name, statistics in kinds.items()}
    latency = {
        nodes: replace(loads["measured"], every_node_s=busy[nodes], divided_s=0.0).response_latency_s(nodes)
        for nodes in lengths
    }
    for nodes in lengths:
        run.add(
            condition=condition.name,
            nodes=nodes,
            busy=busy[nodes],
            latency_s=latency[nodes] if isfinite(latency[nodes]) else None,
            model_s=min(loads["measured"].response_latency_s(nodes), LONGEST_S),
        )
    best = min(lengths, key=latency.__getitem__)
    found: Row = {"condition": condition.name, "best": best, "rate": condition.rate}
    for name, load in loads.items():
        wanted = load.optimal_length(MOST)
        chosen = min(lengths, key=lambda n, wanted=wanted: abs(log(n / wanted)))
        found[name] = wanted
        found[f"{name}_over_best"] = min(latency[chosen] / latency[best], MOST_OVER)
    found["measured_us"] = 1e6 * (known.seconds_per_candidate or 0.0)
    found["sampled_us"] = 1e6 * (kinds["sampled"].seconds_per_candidate or 0.0)
    run.add(**found)


FIGURE = Figure(
    measure,
    "chosen / best, response latency, the worst of all conditions",
    (Panel("response latency (s); dashed: the model", "nodes", "latency_s", "condition", beside="model_s"),),
    "condition; rate|tuples/s of a stream; measured_us|candidate in the run (us); "
    "sampled_us|candidate on a sample (us); best|best nodes; measured|chosen, measured; "
    "measured_over_best|latency / best; sampled|chosen, sampled; sampled_over_best|latency / best; "
    "assumed|chosen, assumed; assumed_over_best|latency / best",
    is_in_table=lambda row: "best" in row,
    truth="the ring's of one node",
)
