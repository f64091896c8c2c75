"""Random schedules of multi-way joins whose nodes change while they run, and their nested loop."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import chain, combinations, product
from typing import Any

import pyarrow as pa

from tests.support.controlled import MAX_UNITS, MOST_MOVED, CrashingRun
from tests.support.controlled_run import ControlledRun
from tests.support.graphs import GraphCase, answer, count_windows, modulus, side
from thetastream.core.condition import Bound, Dimension, Equality
from thetastream.core.sides import Side
from thetastream.core.spans import Rows
from thetastream.engine.multiway.graph import OPEN, Edge, Ends, GraphPredicate, JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import ATR, CTR, Multiway, Ring
from thetastream.models.ring import OneEpochRing
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.control.request import Request

RULES = Rules(MAX_UNITS, only_sizes=True)
MOVING_RULES = replace(RULES, never_expires=(True, True), moves_tuples=True)
STEP = 10
"""The event time of an epoch."""


def draw_multiway(rng: random.Random, kind: type[Multiway], n_streams: int) -> Multiway:
    """Draw a multi-way model of some kind, with any settings."""
    nodes, span = rng.randint(1, 4), timedelta(microseconds=rng.randint(1, 12))
    if kind is ATR:
        return ATR(nodes, span, rng.randrange(n_streams))
    if kind is CTR:
        return CTR(nodes, rng.randint(1, 3), span)
    cut = rng.choice((Rows(1), Rows(3), span))
    if kind is OneEpochRing:
        return Ring(nodes, cut).store_once(rng.randrange(n_streams))
    return Ring(nodes, cut, None, rng.choice((None, None, 5, 25)), rng.choice((None, None, 4)))


def draw_graph(rng: random.Random, n_streams: int, endless: float = 0.0) -> JoinGraph:
    """Draw a condition in which each stream has a window, so that all tuples expire.

    ``endless`` is the share of pairs of streams whose event times have no bounds.
    """
    edges = {}
    for left, right in combinations(range(n_streams), 2):
        is_tied = right == left + 1 or rng.random() < 0.3
        edges[left, right] = Edge(
            (Equality(0, 0),) if is_tied and rng.random() < 0.5 else (),
            (Dimension(Side.LEFT, 1, Bound(1, -2), Bound(1, rng.randint(0, 2))),) if is_tied else (),
            OPEN if endless and rng.random() < endless else Ends(-rng.randint(4, 14), rng.randint(4, 14)),
        )
    streams = sorted(rng.sample(range(n_streams), 2))
    read = tuple((n, "abcde"[n], (("x", f"s{n}k0"),)) for n in streams)
    predicates = (GraphPredicate("modulus", modulus, read),) * (rng.random() < 0.3)
    return JoinGraph(tuple(side(n) for n in range(n_streams)), edges, predicates)


def draw_refinement(rng: random.Random, model: Multiway, graph: JoinGraph) -> Refinement | None:
    """Draw hop orders that may change, or none."""
    m = len(graph.sides)
    if not isinstance(model, Ring) or m == 2 or rng.random() < 0.3:
        return None
    ties = tuple((1 << n | 1 << n + 1, rng.choice((0.001, 0.1, 1.0))) for n in range(m - 1))
    return Refinement((True,) * m, ties, tuple(graph.lifetime_us(n) for n in range(m)))


def run_graph_schedule(
    seed: int, kind: type[Multiway], epochs: int = 12, moves_tuples: bool = False, is_counted: bool = False
) -> tuple[Counter[Any], Counter[Any], CrashingRun]:
    """Run a random schedule of requests, crashes, lateness and bursts.

    With ``moves_tuples``, nodes of a ring that leave move their tuples, a few in each epoch. Some tuples
    never expire then. With ``is_counted``, windows count tuples.

    Return the results found, the results of the nested loop, and the run.
    """
    rng = random.Random(seed)
    m = rng.choice((3, 3, 4)) if issubclass(kind, Ring) else rng.choice((2, 3, 3, 4))
    graph = draw_graph(rng, m, 0.3 if moves_tuples else 0.0)
    if is_counted:
        graph = count_windows(graph, [rng.randint(1, 12) for _ in range(m)])
    first = draw_multiway(rng, kind, m)
    if isinstance(first, Ring) and moves_tuples:
        first = replace(first, moves_tuples=rng.random() < 0.8)
    orders = tuple(tuple(rng.sample([n for n in range(m) if n != one], m - 1)) for one in range(m))
    spec = build_multiway_spec(graph, orders, first, rng.randint(1, 6), draw_refinement(rng, first, graph))
    spec = replace(spec, most_moved=MOST_MOVED)
    case = GraphCase(graph, orders, None, ())
    run = CrashingRun(spec, first, MOVING_RULES if moves_tuples else RULES)
    found: Counter[Any] = Counter()
    ids = [4 * n for n in range(m)]  # Each tuple has an id, a time and two keys.
    read: list[Any] = []
    watermark, number = None, 0

    def attempt(batches: list[pa.RecordBatch]) -> None:
        crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
        for columns in run.attempt(batches, watermark, crashes):
            found.update(zip(*(columns[n].to_pylist() for n in ids), strict=True))

    for epoch in range(epochs):
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            run.put(draw_graph_request(rng))
        rows: list[list[dict[str, int]]] = [[] for _ in range(m)]
        for n in range(m):
            for _ in range(rng.choice((0, 1, 2, 4))):
                time = STEP * epoch + rng.randint(-12, 5)
                rows[n].append({"id": number, "t": time, "k0": rng.randint(0, 1), "k1": rng.randint(0, 3)})
                number += 1
        read.append((tuple(rows), watermark))
        attempt([case.batch(n, part) for n, part in enumerate(rows)])
        if rng.random() < 0.8:
            watermark = max(watermark or 0, STEP * epoch - rng.randint(2, 12)) or None
    while run.in_flight or run._is_waiting:
        attempt([])
    return found, answer(replace(case, epochs=tuple(read))), run


def draw_graph_request(rng: random.Random) -> Request:
    """Draw a request: more or fewer nodes, or something that is refused."""
    if rng.random() < 0.15:
        return Request(model=rng.choice((Ring(2), ATR(2), CTR(2))), sizes={"nodes": rng.choice((0, 99))})
    return Request(sizes={"nodes": rng.randint(1, 4)})


def measure_agreement(run: CrashingRun) -> Iterable[tuple[Any, ...]]:
    """List what the live nodes have decided: how many tuples arrived, what waits, and the hop orders.

    Nodes that have ended in the last epoch, or join after it, have decided nothing.
    """
    for slot in set(run.plan.slots) & set(run.offset.plan.slots):
        state = run.states[slot]
        waiting = tuple((one.stream, one.horizon, one.n_rows, one.done) for one in state.waiting)
        measured = None if state.measured is None else repr(state.measured)
        yield state.arrived, waiting, tuple(state.admitted), measured


REACH = 2
"""In ``explore``, tuples join if their event times differ by at most this. The event time is the epoch."""


def explore(
    model: Multiway,
    kind: type[ControlledRun] = ControlledRun,
    n_changes: int = 2,
    counts: tuple[int, ...] | None = None,
) -> Iterator[str]:
    """Yield what goes wrong if the nodes change in any of the first epochs; nothing if all is right.

    One tuple of each stream arrives in each epoch, and tuples of five epochs join. ``counts`` are the sizes
    of count windows instead.
    """
    edges = {pair: Edge(window=Ends(-REACH, REACH)) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(map(side, range(3))), edges)
    graph = graph if counts is None else count_windows(graph, counts)
    orders = ((1, 2), (2, 0), (0, 1))
    case = GraphCase(graph, orders, None, ())
    epochs = tuple(
        (tuple([{"id": 10 * now + n, "t": now, "k0": 0, "k1": 0}] for n in range(3)), now - 1 or None)
        for now in range(1, 9)
    )
    wanted = answer(replace(case, epochs=epochs))
    for asked in product((None, 1, 2), repeat=n_changes):
        spec = replace(build_multiway_spec(graph, orders, model, 1), most_moved=1)
        run = kind(spec, model, RULES)
        found: Counter[Any] = Counter()
        for number, (rows, watermark) in enumerate(epochs):
            if 0 < number <= n_changes and asked[number - 1] is not None:
                run.put(Request(sizes={"nodes": asked[number - 1]}))
            batches = [case.batch(n, part) for n, part in enumerate(rows)]
            is_last = number == len(epochs) - 1
            for columns in chain(run.epoch(batches, watermark), run.drain(watermark) if is_last else ()):
                found.update(zip(*(columns[4 * n].to_pylist() for n in range(3)), strict=True))
        if found != wanted:
            yield f"{asked}: {found - wanted} too many, {wanted - found} are missing"
