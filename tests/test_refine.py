"""Orders that follow what is measured: random orders in flight, evidence, trials, what it saves."""

import json
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thetastream.condition import Bound, Dimension, Equality
from thetastream.joiner import refine
from thetastream.joiner.census import MOST, Census
from thetastream.joiner.graph import Edge, Ends, JoinGraph
from thetastream.joiner.refine import Measured, Refinement, Refiner, Routes, Shares
from thetastream.local.ring import LocalRing
from thetastream.models import Ring
from thetastream.plan.ring import ring_spec
from thetastream.testing.graphs import GraphCase, answer, graph_cases, run_ring, side
from thetastream.types import Side
from thetastream.windows import Rows

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def refinements(draw: st.DrawFn, graph: JoinGraph) -> Refinement:
    """Some streams free, estimates that may be far off."""
    m = len(graph.sides)
    pairs = [1 << i | 1 << j for i, j in combinations(range(m), 2)]
    ties = draw(st.lists(st.tuples(st.sampled_from(pairs), st.sampled_from([0.001, 0.1, 1.0]))))
    lifetimes = tuple(graph.lifetime_us(n) for n in range(m))
    return Refinement(tuple(draw(st.booleans()) for _ in range(m)), tuple(ties), lifetimes)


@settings(RELAXED, max_examples=80)
@given(st.data(), graph_cases(most=5), st.integers(1, 3), st.one_of(st.none(), st.integers(1, 9)))
def test_same_bag_while_orders_change(data: st.DataObject, case: GraphCase, nodes: int, limit: int) -> None:
    """Hardly any evidence is needed, so orders change and tuples try others while messages are under way."""
    refinement = data.draw(refinements(case.graph))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refine, "PSEUDO", 0.01)
        patch.setattr(refine, "BETTER", 1.0)
        patch.setattr(refine, "TRIED", 2)
        assert run_ring(case, Ring(nodes, Rows(2), None, limit), refinement) == answer(case)


@settings(RELAXED, max_examples=40)
@given(st.randoms(use_true_random=False), graph_cases(most=5), st.integers(1, 3))
def test_same_bag_whatever_the_orders(random, case: GraphCase, nodes: int) -> None:
    """Every epoch has orders, and others for the tuples that try, that nothing but chance has chosen."""
    m = len(case.graph.sides)
    chosen: dict[object, list] = {}

    def orders() -> list:
        return [tuple(random.sample([n for n in range(m) if n != origin], m - 1)) for origin in range(m)]

    def choose(refiner: Refiner) -> None:
        # The nodes of an epoch have counted the same, and so decide alike.
        known = repr((refiner._census.entries, sorted(refiner._counts.items())))
        refiner.orders, refiner._trials = chosen.setdefault(known, (orders(), orders()))

    refinement = Refinement((True,) * m, (), (None,) * m)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Refiner, "choose", choose)
        assert run_ring(case, Ring(nodes, Rows(2)), refinement) == answer(case)


def skewed() -> JoinGraph:
    """a and b are always alike, a and c hardly ever; all within 20."""
    window = Ends(-20, 20)
    often = Edge((), (Dimension(Side.LEFT, 0, Bound(0, -9), Bound(0, 9)),), window)
    seldom = Edge((Equality(1, 1),), (), window)
    return JoinGraph(
        tuple(side(n) for n in range(3)), {(0, 1): often, (0, 2): seldom, (1, 2): Edge(window=window)}
    )


def replayed(refinement: Refinement | None, epochs: int = 30) -> tuple[list[int], LocalRing, Counter]:
    """Partial results sent, epoch by epoch, the ring afterwards, and what it found."""
    graph, random = skewed(), np.random.default_rng(3)
    orders = ((1, 2), (0, 2), (0, 1))
    join = LocalRing(ring_spec(graph, orders, Ring(2, Rows(4)), None, refinement))
    case, sent, found = GraphCase(graph, orders, None, ()), [], Counter()
    numbers = iter(range(10**6))
    for now in range(epochs):
        rows = [
            [
                {
                    "id": next(numbers),
                    "t": 10 * now + int(random.integers(10)),
                    "k0": 0,
                    "k1": int(random.integers(40)),
                }
                for _ in range(10)
            ]
            for _ in range(3)
        ]
        for columns in join.epoch([case.batch(n, part) for n, part in enumerate(rows)], 10 * now - 1):
            found.update(zip(*(columns[4 * n].to_pylist() for n in range(3)), strict=True))
        sent.append(sum(counters.forwarded for counters in join.counters))
    for columns in join.drain(None):
        found.update(zip(*(columns[4 * n].to_pylist() for n in range(3)), strict=True))
    return sent, join, found


# As if the equality left most and the band hardly any: the wrong way round.
WRONG = ((0b011, 0.1), (0b101, 1 / 3))


def test_an_order_that_was_estimated_badly_is_left() -> None:
    lifetimes = tuple(skewed().lifetime_us(n) for n in range(3))
    planned, _, expected = replayed(None)
    refined, join, found = replayed(Refinement((True, False, True), WRONG, lifetimes))
    assert found == expected
    assert sum(found.values()) > 20
    # b's order is the user's: a -> b was wrong and is left, c -> a was right and stays, b -> a sends on.
    assert [node.order for node in join.counters] == [{"a": ["c", "b"], "b": ["a", "c"], "c": ["a", "b"]}] * 2
    assert sum(refined[-10:]) < 0.7 * sum(planned[-10:])
    assert {str(state.measured) for state in join.states} == {str(join.states[0].measured)}


def test_what_is_known_is_plain_json() -> None:
    _, join, _ = replayed(Refinement((True,) * 3, WRONG, (20, 20, 20)), epochs=4)
    known = join.states[0].measured
    assert known.counts
    assert Measured.from_json(json.loads(json.dumps(known.as_json()))) == known


def test_counts_come_in_any_order() -> None:
    spec = Refinement((True,) * 3, WRONG, (None,) * 3)
    found = [((1, 1), 5), ((2, 2), 7), ((1, 1), 3)]
    known = Measured([], {(1, 1): 50, (2, 2): 9}, {(4, 0): (2.0, 1.0)}, [])
    counted = []
    for order in (found, found[::-1]):
        refiner = Refiner(spec, ((1, 2), (0, 2), (0, 1)), known)
        refiner.count(order)
        counted.append(refiner.measured.counts)
    assert repr(counted[0]) == repr(counted[1])
    assert counted[0] == {(1, 1): (50, 8), (2, 2): (9, 7), (4, 0): (1.96, 0.98)}


def test_a_tied_pair_that_is_never_a_first_hop_is_tried_by_a_few() -> None:
    spec = Refinement((True, True, False), ((0b011, 0.1), (0b101, 0.5)), (None,) * 3)
    refiner = Refiner(spec, ((1, 2), (0, 2), (0, 1)), None)
    refiner.arrived([(n, 0, 100) for n in range(3)], None)
    refiner.choose()
    turns = np.arange(1000)
    order, rows = refiner.trial(0, turns)
    assert order == (2, 1)
    assert 60 < len(rows) < 190
    assert set(turns[::-1][refiner.trial(0, turns[::-1].copy())[1]]) == set(rows)
    assert refiner.trial(1, turns) is None, "nothing ties b and c"
    assert refiner.trial(2, turns) is None, "the order of c is set"
    known = Measured([], {}, {(0b100, 0): (5000.0, 2500.0)}, [])
    later = Refiner(spec, ((1, 2), (0, 2), (0, 1)), known)
    later.choose()
    assert later.trial(0, turns) is None


def test_measured_sets_correct_the_product_of_their_pairs() -> None:
    spec = Refinement((True,) * 4, ((0b0011, 0.1), (0b0110, 0.1)), (None,) * 4)
    pairs = {(0b0001, 1): (1e6, 2e5), (0b0010, 2): (1e6, 2e5)}
    assert Shares(spec, pairs).of(0b0111) == pytest.approx(0.04, rel=0.01)
    correlated = {**pairs, (0b0011, 2): (1e6, 1e6)}
    assert Shares(spec, correlated).of(0b0111) == pytest.approx(0.2, rel=0.01)


@settings(RELAXED, max_examples=40)
@given(
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6), st.lists(st.integers(1, 50), min_size=4, max_size=4)
)
def test_the_best_order_is_no_worse_than_any(selectivities, held) -> None:
    pairs = [1 << i | 1 << j for i, j in combinations(range(4), 2)]
    spec = Refinement((True,) * 4, tuple(zip(pairs, selectivities, strict=True)), (None,) * 4)
    routes = Routes(Shares(spec, {}), held)
    for origin in range(4):
        others = [n for n in range(4) if n != origin]
        best = min(routes.cost(origin, order) for order in permutations(others))
        assert routes.cost(origin, routes.best((origin,))) == pytest.approx(best)


def test_a_census_stays_short() -> None:
    census = Census([100], [])
    for now in range(1000):
        census.add(0, now, 2)
        census.expire(now)
        assert len(census.entries[0]) <= MOST
        assert 1 <= census.held(0) / (2 * min(now + 1, 100)) < 1.15
