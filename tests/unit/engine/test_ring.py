"""Compare multi-way models with the nested loop: random graphs, windows, disorder, late tuples, epochs,
nodes."""

from dataclasses import replace
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.draws import draw_cases
from tests.support.graphs import (
    GraphCase,
    answer,
    count_windows,
    counted_cases,
    graph_cases,
    run_multiway,
    side,
)
from tests.support.local import LocalMultiway
from tests.support.tiny import make_all_tiny, make_segments_tiny, make_time_cells_tiny
from thetastream.core.spans import Rows
from thetastream.engine.counters import Arrived
from thetastream.engine.multiway import hop_orders
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import ATR, CTR, Multiway, Ring
from thetastream.models.ring import OneEpochRing

SLICES = st.sampled_from([Rows(1), Rows(3), timedelta(microseconds=1), timedelta(microseconds=4)])
NODES = st.integers(1, 4)
SEGMENTS = st.integers(1, 12).map(lambda us: timedelta(microseconds=us))
LIMITS = st.one_of(st.none(), st.integers(1, 9), st.integers(10, 30))
ONE_EPOCH = st.builds(
    Ring.store_once, st.builds(Ring, NODES, SLICES, st.none(), st.none(), LIMITS), st.integers(0, 1)
)
MODELS = st.one_of(
    st.builds(Ring, NODES, SLICES, st.none(), LIMITS, LIMITS),
    st.builds(ATR, NODES, SEGMENTS, st.integers(0, 1)),
    st.builds(CTR, NODES, st.integers(1, 4), SEGMENTS),
    ONE_EPOCH,
)


@draw_cases(35)
@given(graph_cases(), MODELS)
def test_same_bag_as_the_nested_loop(case: GraphCase, model: Multiway) -> None:
    assert run_multiway(case, model) == answer(case)


@draw_cases(12)
@given(graph_cases(), MODELS)
def test_each_tuple_is_counted_once_as_timely_or_late(case: GraphCase, model: Multiway) -> None:
    join = LocalMultiway(build_multiway_spec(case.graph, case.orders, model, case.archive_period_us))
    streams = range(len(case.graph.sides))
    for number, (rows, late_us) in enumerate(oracle.pair_with_late_watermark(case.epochs)):
        list(join.epoch([case.batch(n, rows[n]) for n in streams], case.epochs[number][1]))
        for stream in streams:
            timely = oracle.timely(rows[stream], late_us, "t")
            found = [unit.streams.get("abcde"[stream], Arrived()) for unit in join.counters]
            assert sum(one.timely for one in found) == len(timely)
            assert sum(one.late for one in found) == len(rows[stream]) - len(timely)
            newest = [one.newest_us for one in found if one.newest_us is not None]
            assert max(newest, default=None) == max((row["t"] for row in rows[stream]), default=None)


@draw_cases(12)
@given(graph_cases(least=5, most=5), MODELS)
def test_same_bag_of_five_streams(case: GraphCase, model: Multiway) -> None:
    assert run_multiway(case, model) == answer(case)


@draw_cases(12)
@given(graph_cases(), MODELS)
def test_same_bag_with_tiny_tiers_and_outputs(case: GraphCase, model: Multiway) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_all_tiny(patch)
        assert run_multiway(case, model) == answer(case)


@draw_cases(12)
@given(graph_cases(), MODELS)
def test_same_bag_with_tiny_time_cells(case: GraphCase, model: Multiway) -> None:
    with pytest.MonkeyPatch.context() as patch:
        make_time_cells_tiny(patch)
        assert run_multiway(case, model) == answer(case)


@draw_cases(35)
@given(counted_cases(), st.one_of(st.builds(Ring, NODES, SLICES, st.none(), LIMITS, LIMITS), ONE_EPOCH))
def test_count_windows_are_those_of_the_nested_loop(case: GraphCase, model: Ring) -> None:
    assert run_multiway(case, model) == answer(case)


@draw_cases(12)
@given(graph_cases(least=3), ONE_EPOCH, st.booleans())
def test_all_hops_end_in_one_epoch_with_orders_that_each_node_measures(
    case: GraphCase, model: OneEpochRing, is_counted: bool
) -> None:
    m = len(case.graph.sides)
    if is_counted:
        case = replace(case, graph=count_windows(case.graph, (4,) * m), archive_period_us=None)
    lifetimes = tuple(case.graph.lifetime_us(stream) for stream in range(m))
    refinement = Refinement((True,) * m, ((0b011, 0.5), (0b110, 0.1)), lifetimes)
    with pytest.MonkeyPatch.context() as patch:
        make_all_tiny(patch)
        patch.setattr(hop_orders, "CHANGE_BELOW", 1.0)
        patch.setattr(hop_orders, "TRIAL_EVERY", 2)
        assert run_multiway(case, model, refinement, has_messages=False) == answer(case)


@draw_cases(12)
@given(counted_cases(), st.integers(1, 3))
def test_count_windows_with_hop_orders_that_are_refined(case: GraphCase, nodes: int) -> None:
    m = len(case.graph.sides)
    refinement = Refinement((True,) * m, ((0b011, 0.5), (0b110, 0.1)), case.graph.counts or ())
    with pytest.MonkeyPatch.context() as patch:
        make_all_tiny(patch)
        patch.setattr(hop_orders, "CHANGE_BELOW", 1.0)
        assert run_multiway(case, Ring(nodes, Rows(1)), refinement) == answer(case)


def test_the_stream_that_is_stored_once_stays_although_another_one_is_planned_later() -> None:
    edges = {pair: Edge(window=Ends(-9, 9)) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(side(stream) for stream in range(3)), edges)
    rows = [tuple([{"id": 3 * now + n, "t": now, "k0": 0, "k1": 0}] for n in range(3)) for now in range(6)]
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), 1, tuple((row, None) for row in rows))
    specs = [build_multiway_spec(graph, case.orders, Ring(2, Rows(1)).store_once(n), 1) for n in (0, 2)]
    join, found = LocalMultiway(specs[0]), 0
    for epoch, (row, watermark) in enumerate(case.epochs):
        join._spec = specs[epoch > 2]
        batches = [case.batch(stream, part) for stream, part in enumerate(row)]
        found += sum(len(columns[0]) for columns in join.epoch(batches, watermark))
    assert {state.stored_once for state in join.states} == {0}
    assert found == sum(answer(case).values()) == 6**3


def test_tuples_that_have_left_their_count_window_are_dropped() -> None:
    """What is stored depends on the counts and not on the number of tuples that have arrived."""
    graph = count_windows(JoinGraph(tuple(side(stream) for stream in range(3)), {}), (4, 10, 20))
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), None, ())
    join = LocalMultiway(build_multiway_spec(graph, case.orders, Ring(2, Rows(1))))
    for now in range(60):
        rows = [{"id": 3 * now + stream, "t": now, "k0": 0, "k1": 0} for stream in range(3)]
        list(join.epoch([case.batch(stream, [row]) for stream, row in enumerate(rows)], None))
    stored = [0, 0, 0]
    for meta in (meta for state in join.states for meta in state.segments):
        stored[meta.stream] += meta.n_rows
    # Partial results in flight arrived one epoch ago. The last archive period of 20 tuples spans two tuples.
    assert all(n <= found <= n + 4 for n, found in zip((4, 10, 20), stored, strict=True)), stored


def test_state_is_the_windows_tuples_each_once(monkeypatch) -> None:
    """No node stores copies, and no tuple is stored longer than windows and partial results in flight need
    it."""
    make_segments_tiny(monkeypatch)
    span, n = 10, 40
    edges = {pair: Edge(window=Ends(-span, span)) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(side(stream) for stream in range(3)), edges)
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), 1, ())
    join = LocalMultiway(build_multiway_spec(graph, case.orders, Ring(3, Rows(2)), 1))
    watermark = None
    for now in range(n):
        rows = [{"id": 3 * now + stream, "t": now, "k0": 0, "k1": 0} for stream in range(3)]
        list(join.epoch([case.batch(stream, [row]) for stream, row in enumerate(rows)], watermark))
        watermark = now
    stored = [meta for state in join.states for meta in state.segments]
    # The late watermark of the last epoch was n - 3. That of the previous epoch, whose partial results were
    # in flight, was n - 4.
    assert sum(meta.n_rows for meta in stored) == 3 * (n - (n - 4 - span) - 1)
    assert len({state.arrived for state in join.states}) == 1
    per_node = [sum(meta.n_rows for meta in state.segments) for state in join.states]
    assert max(per_node) <= 1.4 * min(per_node)


def test_nodes_join_in_as_the_rate_doubles() -> None:
    """Only new slices go to more nodes. Nodes keep their slices until these have expired."""
    edges = {pair: Edge(window=Ends(-3, 3)) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(side(stream) for stream in range(3)), edges)
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), 1, ())
    join = LocalMultiway(build_multiway_spec(graph, case.orders, Ring(4, Rows(1), tuples_per_node=6), 1))
    storing = []
    for now, rate in enumerate([2] * 6 + [4] * 6 + [2] * 9):
        rows = [{"id": n, "t": now, "k0": 0, "k1": 0} for n in range(rate)]
        list(join.epoch([case.batch(stream, rows) for stream in range(3)], now - 1 if now else None))
        storing.append(
            [sum(counters.stored for counters in join.counters[n:]) > 0 for n in range(4)].count(True)
        )
    assert storing == [1] * 6 + [2] * 6 + [1] * 9
    assert [bool(state.segments) for state in join.states] == [True, False, False, False]
