"""ATR and CTR: which nodes store a tuple, and which nodes a probe reads."""

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.graphs import side
from tests.support.local import LocalMultiway
from thetastream.core.condition import Domain, Key, SideSpec
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.graph import Edge, Ends, JoinGraph
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.models import ATR, CTR
from thetastream.models.ctr import cover
from thetastream.models.multiway import NewTuples, Probes

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
