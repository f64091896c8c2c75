"""Hop orders that follow measurements: random hop orders in flight, counts, trials, and savings."""

import json
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from tests.support.graphs import GraphCase, answer, graph_cases, run_multiway, side
from tests.support.local import LocalMultiway
from thetastream.core.condition import Bound, Dimension, Equality
from thetastream.core.records import decode, encode
from thetastream.core.sides import Side
from thetastream.core.spans import Rows
from thetastream.engine.multiway import hop_orders, selectivities
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.engine.multiway.hop_orders import MOST, HopMeasurements, HopOrderCosts, Refiner, StoredCounts
from thetastream.engine.multiway.selectivities import Refinement, Selectivities
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import Ring


@st.composite
def refinements(draw: st.DrawFn, graph: JoinGraph) -> Refinement:
    """Draw a refinement in which some hop orders are free and estimates may be wrong."""
    m = len(graph.sides)
    pairs = [1 << i | 1 << j for i, j in combinations(range(m), 2)]
    ties = draw(st.lists(st.tuples(st.sampled_from(pairs), st.sampled_from([0.001, 0.1, 1.0]))))
    lifetimes = tuple(graph.lifetime_us(n) for n in range(m))
    return Refinement(tuple(draw(st.booleans()) for _ in range(m)), tuple(ties), lifetimes)


@draw_cases(20)
@given(st.data(), graph_cases(most=5), st.integers(1, 3), st.one_of(st.none(), st.integers(1, 9)))
def test_same_bag_while_orders_change(data: st.DataObject, case: GraphCase, nodes: int, limit: int) -> None:
    """Few comparisons are needed, so hop orders change and trials happen while partial results are in
    flight."""
    refinement = data.draw(refinements(case.graph))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selectivities, "PRIOR_MATCHES", 0.01)
        patch.setattr(hop_orders, "CHANGE_BELOW", 1.0)
        patch.setattr(hop_orders, "TRIAL_EVERY", 2)
        assert run_multiway(case, Ring(nodes, Rows(2), None, limit), refinement) == answer(case)


@draw_cases(10)
@given(st.randoms(use_true_random=False), graph_cases(most=5), st.integers(1, 3))
def test_same_bag_whatever_the_orders(random, case: GraphCase, nodes: int) -> None:
    """In every epoch, hop orders and the hop orders of trials are chosen at random."""
    m = len(case.graph.sides)
    chosen: dict[object, list] = {}

    def orders() -> list:
        return [tuple(random.sample([n for n in range(m) if n != origin], m - 1)) for origin in range(m)]

    def choose(refiner: Refiner) -> None:
        # All nodes have the same counts in an epoch, so they must choose the same hop orders.
        known = repr((refiner._stored_counts.entries, sorted(refiner._counts.items())))
        refiner.orders, refiner._trials = chosen.setdefault(known, (orders(), orders()))

    refinement = Refinement((True,) * m, (), (None,) * m)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Refiner, "choose", choose)
        assert run_multiway(case, Ring(nodes, Rows(2)), refinement) == answer(case)


def skewed() -> JoinGraph:
    """Build a graph in which a and b almost always match, and a and c rarely do, with windows of 20."""
    window = Ends(-20, 20)
    often = Edge((), (Dimension(Side.LEFT, 0, Bound(0, -9), Bound(0, 9)),), window)
    seldom = Edge((Equality(1, 1),), (), window)
    return JoinGraph(
        tuple(side(n) for n in range(3)), {(0, 1): often, (0, 2): seldom, (1, 2): Edge(window=window)}
    )


def replay(refinement: Refinement | None, epochs: int = 30) -> tuple[list[int], LocalMultiway, Counter]:
    """Run the ring; return the number of sent partial results by epoch, the ring, and its results."""
    graph, random = skewed(), np.random.default_rng(3)
    orders = ((1, 2), (0, 2), (0, 1))
    join = LocalMultiway(build_multiway_spec(graph, orders, Ring(2, Rows(4)), None, refinement))
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


# These estimates are wrong: they claim that the band is more selective than the equality.
WRONG = ((0b011, 0.1), (0b101, 1 / 3))


def test_an_order_that_was_estimated_badly_is_left() -> None:
    lifetimes = tuple(skewed().lifetime_us(n) for n in range(3))
    planned, _, expected = replay(None)
    refined, join, found = replay(Refinement((True, False, True), WRONG, lifetimes))
    assert found == expected
    assert sum(found.values()) > 20
    # The user set the hop order of b. The hop order of a was wrong and changes, and that of c was right and
    # stays.
    assert [node.order for node in join.counters] == [{"a": ["c", "b"], "b": ["a", "c"], "c": ["a", "b"]}] * 2
    assert sum(refined[-10:]) < 0.7 * sum(planned[-10:])
    assert {str(state.measured) for state in join.states} == {str(join.states[0].measured)}


def test_what_is_known_is_plain_json() -> None:
    _, join, _ = replay(Refinement((True,) * 3, WRONG, (20, 20, 20)), epochs=4)
    known = join.states[0].measured
    assert known.counts
    assert decode(HopMeasurements, json.loads(json.dumps(encode(known)))) == known


def test_counts_come_in_any_order() -> None:
    spec = Refinement((True,) * 3, WRONG, (None,) * 3)
    found = [((1, 1), 5), ((2, 2), 7), ((1, 1), 3)]
    known = HopMeasurements([], [(1, 1, 50), (2, 2, 9)], [(4, 0, 2.0, 1.0)], [])
    counted = []
    for order in (found, found[::-1]):
        refiner = Refiner(spec, ((1, 2), (0, 2), (0, 1)), known)
        refiner.count_results(order)
        counted.append(refiner.measured.counts)
    assert repr(counted[0]) == repr(counted[1])
    assert sorted(counted[0]) == [(1, 1, 50, 8), (2, 2, 9, 7), (4, 0, 1.96, 0.98)]


def test_a_tied_pair_that_is_never_a_first_hop_is_tried_by_a_few() -> None:
    spec = Refinement((True, True, False), ((0b011, 0.1), (0b101, 0.5)), (None,) * 3)
    refiner = Refiner(spec, ((1, 2), (0, 2), (0, 1)), None)
    refiner.count_arrivals([(n, 0, 100) for n in range(3)], [None] * 3)
    refiner.choose()
    turns = np.arange(1000)
    order, rows = refiner.assign_trial(0, turns)
    assert order == (2, 1)
    assert 60 < len(rows) < 190
    assert set(turns[::-1][refiner.assign_trial(0, turns[::-1].copy())[1]]) == set(rows)
    assert refiner.assign_trial(1, turns) is None, "the condition does not compare b and c"
    assert refiner.assign_trial(2, turns) is None, "the hop order of c is fixed"
    known = HopMeasurements([], [], [(0b100, 0, 5000.0, 2500.0)], [])
    later = Refiner(spec, ((1, 2), (0, 2), (0, 1)), known)
    later.choose()
    assert later.assign_trial(0, turns) is None


def test_measured_sets_correct_the_product_of_their_pairs() -> None:
    spec = Refinement((True,) * 4, ((0b0011, 0.1), (0b0110, 0.1)), (None,) * 4)
    pairs = {(0b0001, 1): (1e6, 2e5), (0b0010, 2): (1e6, 2e5)}
    assert Selectivities(spec, pairs).of(0b0111) == pytest.approx(0.04, rel=0.01)
    correlated = {**pairs, (0b0011, 2): (1e6, 1e6)}
    assert Selectivities(spec, correlated).of(0b0111) == pytest.approx(0.2, rel=0.01)


@draw_cases(20)
@given(
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6), st.lists(st.integers(1, 50), min_size=4, max_size=4)
)
def test_the_best_order_is_no_worse_than_any(selectivities, held) -> None:
    pairs = [1 << i | 1 << j for i, j in combinations(range(4), 2)]
    spec = Refinement((True,) * 4, tuple(zip(pairs, selectivities, strict=True)), (None,) * 4)
    routes = HopOrderCosts(Selectivities(spec, {}), held)
    for origin in range(4):
        others = [n for n in range(4) if n != origin]
        best = min(routes.estimate_cost(origin, order) for order in permutations(others))
        assert routes.estimate_cost(origin, routes.find_best((origin,))) == pytest.approx(best)


def test_stored_counts_stay_short() -> None:
    counts = StoredCounts([100], [])
    for now in range(1000):
        counts.add(0, now, 2)
        counts.expire([now])
        assert len(counts.entries[0]) <= MOST
        assert 1 <= counts.count(0) / (2 * min(now + 1, 100)) < 1.15
