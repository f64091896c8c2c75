"""Compare the cost model of the ring with the counters of nodes, and test what the planner derives from
it."""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from tests.support.graphs import side
from tests.support.local import LocalMultiway
from thetastream.core.condition import Equality
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.families.hops.cost import (
    EMPTY_EPOCH_S,
    FULLEST,
    NODE_S,
    HopLoad,
    MultiwayLoad,
    compute_load,
    estimate_load,
)
from thetastream.families.hops.graph import build_multiway_spec, list_hops
from thetastream.lowering.query import Stream
from thetastream.lowering.statistics import Statistics
from thetastream.models import Ring

RATE, SPAN, KEYS = 20, 15, 10
ORDERS = ((1, 2), (0, 2), (1, 0))


WINDOW = Ends(-SPAN, SPAN)
GRAPH = JoinGraph(
    tuple(side(n) for n in range(3)),
    {
        (0, 1): Edge((Equality(0, 0),), window=WINDOW),
        (1, 2): Edge((Equality(0, 0),), window=WINDOW),
        (0, 2): Edge(window=WINDOW),
    },
)
"""The condition a.k = b.k = c.k."""


COUNTED = ("forwarded", "matched", "candidates", "stored")


@cache
def count_in_steady_state(model: Ring) -> dict[str, float]:
    """Return the mean counters of an epoch, over all nodes, for uniform keys."""
    spec = build_multiway_spec(GRAPH, ORDERS, model, 2)
    join, random = LocalMultiway(spec), np.random.default_rng(7)
    counted = np.zeros(len(COUNTED))
    n_epochs, n_counted = 3 * SPAN, SPAN
    for epoch in range(n_epochs):
        batches = []
        for n in range(3):
            columns = [
                np.arange(RATE),
                np.full(RATE, epoch),
                random.integers(0, KEYS, RATE),
                np.zeros(RATE, int),
            ]
            batches.append(pa.RecordBatch.from_arrays([pa.array(c) for c in columns], names=side(n).columns))
        list(join.epoch(batches, epoch - 1 if epoch else None))
        if epoch >= n_epochs - n_counted:
            counted += [sum(getattr(c, name) for c in join.counters) for name in COUNTED]
    return dict(zip(COUNTED, counted / n_counted, strict=True))


# The condition ties a to b and b to c. It ties a and c only through b.
SELECTIVITY = {
    (frozenset(members), target): 1.0 if members in ((0,), (2,)) and target in (0, 2) else 1 / KEYS
    for members, target in list_hops(ORDERS)
}


def test_partial_and_complete_results_are_as_many_as_estimated() -> None:
    counted = count_in_steady_state(Ring(3))
    same = dict.fromkeys(SELECTIVITY, 1.0)
    load = compute_load([RATE] * 3, [RATE * SPAN] * 3, ORDERS, SELECTIVITY, same, same, [8] * 3)
    forwarded = sum(hops[0].found for hops in load.hops)
    found = counted["forwarded"], counted["matched"]
    assert found == pytest.approx((forwarded, load.output_rate), rel=0.2)


@pytest.mark.parametrize("assumed", [1 / 3, 1 / 1000])
def test_measured_candidates_take_the_place_of_assumed_selectivities(assumed: float) -> None:
    counted = count_in_steady_state(Ring(3))
    # An epoch is a microsecond of event time.
    per_tuple = counted["candidates"] / (3 * RATE)
    known = Statistics(tuples_per_second=RATE * 1e6, bytes_per_tuple=8, candidates_per_tuple=per_tuple)
    streams = tuple(Stream(each.alias, ()) for each in GRAPH.sides)
    ties = [(frozenset("ab"), assumed), (frozenset("bc"), assumed)]
    fitted = estimate_load(streams, GRAPH, ORDERS, ties, known)
    assert fitted.candidates == pytest.approx(per_tuple * 3 * RATE * 1e6)
    assert fitted.output_rate / 1e6 == pytest.approx(counted["matched"], rel=0.3)


@pytest.mark.parametrize("stored_once", [0, 1])
def test_nodes_compare_and_store_as_much_as_estimated_if_all_hops_end_in_one_epoch(stored_once: int) -> None:
    nodes = 3
    counted = count_in_steady_state(Ring(nodes).store_once(stored_once))
    second = dict.fromkeys(SELECTIVITY, 1.0)
    rates, held = [RATE] * 3, [RATE * SPAN] * 3
    # The index offers the tuples with equal keys.
    load = compute_load(rates, held, ORDERS, SELECTIVITY, SELECTIVITY, second, [8] * 3, stored_once)
    assert counted["candidates"] / nodes == pytest.approx(load.busy(nodes), rel=0.2)
    assert counted["stored"] / sum(rates) == pytest.approx(load.copies(nodes))
    assert load.response_latency_s(nodes) == load.epoch_s(nodes) * 1.5


def test_longer_rings_share_the_divided_work_only() -> None:
    load = MultiwayLoad(1000, (), (), every_node_s=0.1, divided_s=2.0, sent_bytes=50)
    assert load.busy(1) == pytest.approx(2.1)
    assert load.busy(4) == pytest.approx(0.6)
    assert load.service_rate(4) == pytest.approx(1000 / 0.6)
    assert load.bandwidth(4) == 200
    assert load.response_latency_s(2) == float("inf")


@pytest.mark.parametrize(("every", "divided"), [(0.1, 2.0), (0.01, 0.02), (0.3, 0.1), (0.02, 20.0), (2, 1)])
def test_each_objective_has_the_best_length_of_all(every: float, divided: float) -> None:
    found = (HopLoad(1000, 5000, 300), HopLoad(300, 900, 30))
    load = MultiwayLoad(1000, (), (found,), every, divided, 1)
    for most in (1, 3, 32):
        lengths = range(1, most + 1)
        latency = {n: load.response_latency_s(n) for n in lengths}
        chosen = load.optimal_length(most, "latency")
        assert latency[chosen] == min(latency.values())
        # Results leave half an epoch and two epochs after their last tuple.
        assert latency[chosen] == pytest.approx(2.5 * load.epoch_s(chosen))
        rates = {n: load.max_output_rate(n) for n in lengths}
        assert list(rates.values()) == sorted(rates.values())
        enough = [n for n in lengths if rates[n] >= 0.95 * rates[most]]
        assert load.optimal_length(most, "throughput") == enough[0]
        roomy = [n for n in lengths if load.busy(n) <= FULLEST]
        assert load.optimal_length(most) == (min(roomy, key=latency.__getitem__) if roomy else most)
    # One node is enough for little work, and no number of nodes is enough for too much.
    assert (load.optimal_length(32) == 1) is (divided < 0.05)
    assert (load.busy(load.optimal_length(32)) > 1) is (every >= 1)


def test_an_epoch_brings_the_work_of_its_own_time() -> None:
    load = MultiwayLoad(1000, (), (), every_node_s=0.1, divided_s=2.0, sent_bytes=50)
    for nodes in (3, 8):
        seconds = load.epoch_s(nodes)
        assert EMPTY_EPOCH_S + nodes * NODE_S + load.busy(nodes) * seconds == pytest.approx(seconds)


def test_seconds_of_a_candidate_change_the_divided_work_only() -> None:
    one = {(frozenset({0}), 1): 0.1, (frozenset({1}), 0): 0.1}
    scan = dict.fromkeys(one, 1.0)
    cheap, dear = (
        compute_load([10, 10], [100, 100], [(1,), (0,)], one, scan, dict.fromkeys(one, s), [8, 8])
        for s in (1e-6, 1e-3)
    )
    assert dear.every_node_s == cheap.every_node_s
    assert dear.divided_s - cheap.divided_s == pytest.approx(2000 * (1e-3 - 1e-6))
    assert dear.optimal_length(32) > cheap.optimal_length(32) == 1
