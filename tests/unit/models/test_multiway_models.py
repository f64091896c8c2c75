"""ATR and CTR: which nodes store a tuple, which nodes receive it, and which nodes a probe reads."""

from datetime import timedelta
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import GraphCase, side
from tests.support.local import LocalMultiway
from thetastream.core.condition import Domain, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import ATR, CTR, Ring
from thetastream.models.ctr import cover
from thetastream.models.multiway import NewTuples, Probes, RoutedTuples

NODES = st.integers(1, 6)
TIMES = st.lists(st.integers(-100, 100), min_size=1).map(lambda times: np.array(times, dtype=np.int64))
SEGMENT = timedelta(microseconds=7)


def build_path(*windows: Ends) -> JoinGraph:
    sides = tuple(
        SideSpec("abcde"[n], (f"t{n}",), time=Key(f"t{n}", Domain.INT)) for n in range(len(windows) + 1)
    )
    return JoinGraph(sides, {(n, n + 1): Edge(window=window) for n, window in enumerate(windows)})


def test_windows_add_up_along_a_path():
    graph = build_path(Ends(-5, 2), Ends(0, 10))
    assert graph.reach(0) == ((0, 0), (-2, 5), (-12, 5))
    assert graph.reach(2) == ((-5, 12), (0, 10), (0, 0))
    assert build_path(Ends(-5, None), Ends(0, 10)).reach(2) == ((-5, None), (0, 10), (0, 0))


@given(NODES, TIMES, st.integers(0, 30), st.integers(0, 30))
def test_atr_stores_a_slave_where_its_window_meets_a_segment(nodes, times, before, after):
    model = ATR(nodes, SEGMENT)
    reach = ((-before, after), (0, 0))
    stored = (
        np.array([model.assign_parts(node, NewTuples(1, times, times, reach)) for node in range(nodes)]) >= 0
    )
    for n, t in enumerate(times.tolist()):
        segments = range((t - before) // 7, (t + after) // 7 + 1)
        assert set(np.flatnonzero(stored[:, n])) == {segment % nodes for segment in segments}


@given(NODES, TIMES)
def test_atr_stores_a_master_once_and_what_is_not_tied_to_it_everywhere(nodes, times):
    model = ATR(nodes, SEGMENT, master=1)
    for stream, copies in ((1, 1), (0, nodes)):
        arrivals = NewTuples(stream, times, times, ((0, 0), (None, 5)))
        stored = np.array([model.assign_parts(node, arrivals) for node in range(nodes)]) >= 0
        assert (stored.sum(axis=0) == copies).all()


@given(NODES, st.integers(1, 6), TIMES, st.integers(0, 60))
def test_ctr_asks_each_segment_of_a_window_at_one_node_that_has_it(nodes, copies, times, width):
    model = CTR(nodes, copies, SEGMENT)
    probes = Probes(times, times + width, times)
    stored = [model.assign_parts(node, NewTuples(0, times, times, ())) for node in range(nodes)]
    assert ((np.array(stored) >= 0).sum(axis=0) == min(copies, nodes)).all()
    asked: dict[tuple[int, int], int] = {}
    for node in range(nodes):
        for part, rows in enumerate(model.choose_probes(node, probes)):
            for row in rows:
                key = int(row), (node - part) % nodes
                assert key not in asked
                asked[key] = node
    for row, t in enumerate(times.tolist()):
        classes = {segment % nodes for segment in range(t // 7, (t + width) // 7 + 1)}
        assert {k for found, k in asked if found == row} == classes


@given(NODES, st.integers(1, 6), st.data())
def test_covers_are_no_longer_than_one_node_a_class(nodes, copies, data):
    copies = min(copies, nodes)
    first, turn = (data.draw(st.integers(0, nodes - 1)) for _ in range(2))
    n = data.draw(st.integers(0, nodes))
    asked = cover(nodes, copies, first, n, turn)
    assert sum(node >= 0 for node in asked) == n
    if copies == nodes:
        assert len({node for node in asked if node >= 0}) == min(n, 1)


def make_routed(stream, times, reach, width=0):
    return RoutedTuples(stream, times, reach, lambda: Probes(times, times + width, times))


@given(NODES, TIMES, st.integers(0, 30), st.integers(0, 30), st.sampled_from([0, 1]))
def test_atr_sends_a_tuple_to_the_nodes_that_store_it(nodes, times, before, after, stream):
    """A slave goes to min(N, 1 + W / T) nodes on average over all places in a segment, a master to one."""
    model, reach = ATR(nodes, SEGMENT), ((-before, after), (0, 0))
    arrivals = make_routed(stream, times, reach)
    sent = model.choose_receivers(arrivals)
    stored = [model.assign_parts(node, NewTuples(stream, times, times, reach)) for node in range(nodes)]
    assert (sent == (np.array(stored) >= 0)).all()
    assert (model.choose_probed(arrivals) == sent).all()
    span = before + after if stream else 0
    copies = sent.sum(axis=0)
    assert (copies >= min(nodes, 1 + span // 7)).all()
    assert (copies <= min(nodes, 1 + -(-span // 7))).all()
    # There are enough nodes here that none has two segments in the reach of a tuple.
    every = ATR(20, SEGMENT).choose_receivers(make_routed(stream, np.arange(70), reach))
    assert every.sum(axis=0).mean() == pytest.approx(1 + span / 7)


def test_a_window_that_no_event_time_satisfies_has_a_node_that_counts_its_tuples():
    arrivals = make_routed(1, np.array([0, 7, 50]), ((9, -9), (0, 0)))
    model = ATR(3, SEGMENT)
    assert not model.choose_probed(arrivals).any()
    assert (model.choose_receivers(arrivals).sum(axis=0) == 1).all()


def test_the_number_of_a_segment_does_not_overflow():
    """A master without an event time is stored once, also if segments are as short as can be."""
    model, times = ATR(3, timedelta(microseconds=1)), np.array([2**63 - 1, -(2**63)])
    for reach in (((0, 0), (0, 0)), ((-5, 5), (0, 0))):
        assert (model.choose_receivers(make_routed(0, times, reach)).sum(axis=0) == 1).all()


@given(NODES, st.integers(1, 6), TIMES, st.integers(0, 60))
def test_ctr_sends_a_tuple_to_its_copies_and_to_the_cover_of_its_first_hop(nodes, copies, times, width):
    model, arrivals = CTR(nodes, copies, SEGMENT), make_routed(0, times, (), width)
    probes = arrivals.find_probes()
    sent, probed = model.choose_receivers(arrivals), model.choose_probed(arrivals)
    for node in range(nodes):
        stored = model.assign_parts(node, NewTuples(0, times, times, ())) >= 0
        asked = np.concatenate(model.choose_probes(node, probes))
        assert set(np.flatnonzero(probed[node])) == set(asked)
        assert (sent[node] == (stored | probed[node])).all()
    n_classes = np.minimum(nodes, (times + width) // 7 - times // 7 + 1)
    # Each node of a greedy cover reads at least one class more, and the first ones as many as they store.
    assert (probed.sum(axis=0) >= -(-n_classes // min(copies, nodes))).all()
    assert (probed.sum(axis=0) <= n_classes).all()


@given(
    TIMES,
    st.one_of(
        st.builds(ATR, NODES, st.just(SEGMENT), st.integers(0, 1)),
        st.builds(CTR, NODES, st.integers(1, 4), st.just(SEGMENT)),
    ),
    st.integers(0, 1),
    st.sampled_from([((0, 0), (0, 0)), ((-9, 20), (-3, 4)), ((None, 5), (0, None))]),
)
def test_each_tuple_is_counted_at_one_node_that_receives_it(times, model, stream, reach):
    arrivals = make_routed(stream, times, reach, 10)
    counted = np.array([model.is_counted(node, arrivals) for node in range(model.nodes)])
    assert (counted.sum(axis=0) == 1).all()
    assert (model.choose_receivers(arrivals) | ~counted).all()


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        # Windows of 10 to each side and segments of 10: a slave goes to three nodes, and a master to one.
        (ATR(8, timedelta(microseconds=10)), 2.3, 2.4),
        (ATR(8, timedelta(microseconds=40)), 1.3, 1.4),
        # The window of a probe touches three classes, or four of them. The nodes with two copies of the tuple
        # store three classes.
        (CTR(8, 1, timedelta(microseconds=10)), 3.0, 3.2),
        (CTR(8, 2, timedelta(microseconds=10)), 2.1, 2.4),
        (Ring(8), 8, 8),
    ],
)
def test_nodes_receive_only_the_copies_that_the_model_needs(model, least, most):
    edges = {pair: Edge(window=Ends(-10, 10)) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(side(n) for n in range(3)), edges)
    case = GraphCase(graph, ((1, 2), (2, 0), (0, 1)), 1, ())
    join = LocalMultiway(build_multiway_spec(graph, case.orders, model, 1))
    rows = [{"id": t, "t": t, "k0": 0, "k1": 0} for t in range(400)]
    received = tuples = 0
    for epoch in range(4):
        batches = [case.batch(stream, rows[100 * epoch : 100 * epoch + 100]) for stream in range(3)]
        inboxes = join.deliver(batches)
        received += sum(inbox.received for inbox in inboxes)
        tuples += 300
        join.in_flight = []
    assert least <= received / tuples <= most


def test_turns_spread_windows_that_touch_all():
    busy = [node for turn in range(4) for node in set(cover(4, 2, 0, 4, turn))]
    assert sorted(busy) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_ctr_keeps_what_a_result_under_way_asks_for_two_epochs_on():
    # Stream d is 45 us older than the others. Its node receives partial results only in the last hop.
    near, far = Edge(window=Ends(-2, 2)), Edge(window=Ends(40, 50))
    edges = {(0, 1): near, (0, 2): near, (1, 2): near, (0, 3): far, (1, 3): far, (2, 3): far}
    graph = JoinGraph(tuple(side(n) for n in range(4)), edges)
    orders = ((1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2))
    join = LocalMultiway(build_multiway_spec(graph, orders, CTR(4, 1, timedelta(microseconds=20)), 1))

    def batch(stream, t):
        return pa.RecordBatch.from_pylist(
            [{name: t if name.endswith("t") else 0 for name in graph.sides[stream].columns}],
            schema=pa.schema([(name, pa.int64()) for name in graph.sides[stream].columns]),
        )

    assert not list(join.epoch([None, batch(1, 45), batch(2, 45), batch(3, 0)], None))
    assert not list(join.epoch([batch(0, 45), None, None, None], 1))
    assert not list(join.epoch([None] * 4, 100))
    assert len(list(join.epoch([None] * 4, 100))) == 1
    assert not join.in_flight
    list(join.epoch([None] * 4, 100))
    assert sum(node.segments for node in join.counters) == 0


@pytest.mark.parametrize(
    ("make", "condition"),
    [
        (lambda: ATR(0), "BAD_UNITS"),
        (lambda: ATR(2, segment=5), "BAD_SEGMENT"),
        (lambda: ATR(2, segment=timedelta(0)), "BAD_SEGMENT"),
        (lambda: ATR(2, master="x").resolve_aliases(["a", "b"]), "BAD_MASTER"),
        (lambda: ATR(2, master=2).resolve_aliases(["a", "b"]), "BAD_MASTER"),
        (lambda: CTR(2, copies=0), "BAD_COPIES"),
        (lambda: CTR(2, order=["a"]), "BAD_HOPS"),
    ],
)
def test_what_is_refused(make, condition):
    with pytest.raises(QueryError) as caught:
        make()
    assert caught.value.condition == condition


def test_a_master_may_be_named():
    assert ATR(2, master="b").resolve_aliases(["a", "b"]) == ATR(2, master=1)
