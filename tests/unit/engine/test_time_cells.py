"""A run that spans many windows is cut into time cells, and a probe compares few of its rows."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.graphs import side
from thetastream.core.blocks import RowFacts
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.multiway.graph import OPEN, Edge, Ends, JoinGraph
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.probing import probe_segments
from thetastream.engine.store.run import Run, build, cut_by_time
from thetastream.engine.store.segment import MemoryStore, describe
from thetastream.families.hops.graph import build_multiway_spec
from thetastream.index import IndexSpec, Scan, Shape, Sorted
from thetastream.models import Ring
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import load, save

N = 3_000
GAP, WINDOW = 60, 30
SIDES = tuple(
    SideSpec(alias, ("t", "v"), (), (Key("v", Domain.INT),), Key("t", Domain.INT)) for alias in "ab"
)


def plan(shape: Shape, low: int = -WINDOW, high: int = WINDOW) -> IndexPlan:
    """Index stored right tuples for ``abs(a.v - b.v) <= 40`` and a window."""
    band = Dimension(Side.LEFT, 0, Bound(0, -40), Bound(0, 40))
    window = Dimension(Side.LEFT, TIME, Bound(TIME, low), Bound(TIME, high))
    ranges = (0,) if isinstance(shape, Sorted) else ()
    return IndexPlan(Condition(SIDES, (), (band,), window), Side.RIGHT, IndexSpec(shape, (), ranges))


def draw(seed: int, gap: int = GAP) -> pa.RecordBatch:
    """Draw tuples of a sparse stream: out of order, some at equal times, and one far ahead of all others."""
    random = np.random.default_rng(seed)
    times = random.permutation(np.repeat(np.arange(N // 3) * gap, 3))
    times[0] = 10**15
    return pa.RecordBatch.from_pydict({"t": times, "v": random.integers(0, 50, N)})


def find(run: Run, index: IndexPlan, probing: pa.RecordBatch) -> tuple[set[tuple[int, int]], int]:
    """Return the pairs of (position of the probe, position in the run), and the number of candidates."""
    store, meta = MemoryStore(), describe(1, 0, run)
    store.put(meta, run)
    keys = np.column_stack([probing.column("t").to_numpy(), probing.column("v").to_numpy()])
    pieces = list(probe_segments([meta], store, index, keys, RowFacts(probing)))
    pairs = [pair for one in pieces for pair in zip(one.probes.tolist(), one.stored.tolist(), strict=True)]
    assert len(set(pairs)) == len(pairs)
    return set(pairs), sum(one.n_compared for one in pieces)


def count_by_hand(index: IndexPlan, run: Run, probing: pa.RecordBatch) -> set[tuple[int, int]]:
    window = index.condition.window
    assert window is not None
    assert window.low is not None
    assert window.high is not None
    distance = probing.column("t").to_numpy()[:, None] - run.rows[:, 0]
    is_near = np.abs(probing.column("v").to_numpy()[:, None] - run.rows[:, 1]) <= 40
    found = np.argwhere(is_near & (distance >= window.low.delta) & (distance <= window.high.delta))
    return {(int(probe), int(stored)) for probe, stored in found}


@pytest.mark.parametrize("shape", [Sorted(), Scan()])
@pytest.mark.parametrize(("low", "high"), [(-WINDOW, WINDOW), (0, 0), (0, 200), (-4_000, -60)])
def test_a_probe_of_sparse_history_compares_few_rows(shape: Shape, low: int, high: int) -> None:
    index = plan(shape, low, high)
    run = build(index, draw(1))
    assert run.is_cut_by_time
    probing = draw(2)
    found, candidates = find(run, index, probing)
    assert found == count_by_hand(index, run, probing)
    assert candidates < N * N // 4


@pytest.mark.parametrize("shape", [Sorted(), Scan()])
def test_dense_history_is_one_cell(shape: Shape) -> None:
    """The tuple with a wrong time does not change that."""
    assert not build(plan(shape, 0, GAP * N // 8), draw(1)).is_cut_by_time
    assert not build(plan(shape), draw(1, gap=0)).is_cut_by_time


def test_times_at_the_edges_of_int64() -> None:
    edges = np.iinfo(np.int64)
    times = np.concatenate([[edges.min, edges.max], np.arange(1_000) * GAP])
    cells = cut_by_time(times, WINDOW)
    assert cells is not None
    order, offsets = cells
    assert np.array_equal(times[order], np.sort(times))
    assert (offsets[0], offsets[-1]) == (0, len(times))


@pytest.mark.parametrize("shape", [Sorted(), Scan()])
def test_a_cached_run_keeps_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape) -> None:
    monkeypatch.setattr(segment_cache, "KEPT_BYTES", 0)
    index = plan(shape)
    run = build(index, draw(1))
    save(tmp_path / "segment", run, index)
    found = load(tmp_path / "segment", index)
    assert find(found, index, draw(2)) == find(run, index, draw(2))


def test_a_probe_without_the_window_visits_all_cells() -> None:
    """A hop of a join of several streams may know the band only."""
    index = plan(Sorted())
    run = build(index, draw(1))
    without = IndexPlan(Condition(SIDES, (), index.condition.dimensions), Side.RIGHT, index.index)
    probing = draw(2).slice(0, 50)
    found, _ = find(run, without, probing)
    is_near = np.abs(probing.column("v").to_numpy()[:, None] - run.rows[:, 1]) <= 40
    assert found == {(int(probe), int(stored)) for probe, stored in np.argwhere(is_near)}


def plan_middle(window: Ends, counts: tuple[int, int, int] | None = None) -> IndexPlan:
    """Index the stored tuples of b for ``abs(a.v - b.v) <= 1 AND abs(b.v - c.v) <= 1`` and a window of all
    three."""
    band = Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, 1))
    edges = {pair: Edge((), (band,) if 1 in pair else (), window) for pair in combinations(range(3), 2)}
    graph = JoinGraph(tuple(side(stream) for stream in range(3)), edges, (), counts)
    spec = build_multiway_spec(graph, ((1, 2), (0, 2), (1, 0)), Ring(1))
    assert isinstance(spec.stored[1].plan.index.shape, Sorted)
    return spec.stored[1].plan


@pytest.mark.parametrize(
    ("middle", "is_cut"),
    [
        (plan_middle(Ends(-WINDOW, WINDOW)), True),
        (plan_middle(Ends(-GAP * N, GAP * N)), False),
        (plan_middle(Ends(None, WINDOW)), False),
        (plan_middle(OPEN, (WINDOW,) * 3), True),
        (plan_middle(OPEN, (GAP * N,) * 3), False),
    ],
)
def test_a_hop_of_several_streams_cuts_by_its_window(middle: IndexPlan, is_cut: bool) -> None:
    """The bounds of a hop are two columns of the partial result, and their distance is the window.

    Dense history of which each window was taken for nothing had a cell for each 64 tuples, and every probe
    searched all of them.
    """
    times = np.arange(N) * GAP
    rows = np.column_stack([times, times % 50, times % 7, times])
    payload = pa.RecordBatch.from_pydict({"id": times})
    assert build(middle, payload, rows).is_cut_by_time is is_cut
