"""Probes that are cut into stretches of similar windows find the pairs of a nested loop, in any index."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thetastream.core.blocks import RowFacts
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Equality, Key, SideSpec
from thetastream.core.sides import Side
from thetastream.engine.store import probing
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.probing import probe_segments
from thetastream.engine.store.run import build
from thetastream.engine.store.segment import MemoryStore, describe
from thetastream.index import Grid, Hash, HashSorted, IndexSpec, Scan, Sorted, Span

KEYS = (Key("x", Domain.INT), Key("y", Domain.INT), Key("k", Domain.INT))
COLUMNS = ("ts", "x", "y", "k")
PROBES, ROWS = 90, 40
INDEXES = [
    IndexSpec(Grid(), (), (0, 1)),
    IndexSpec(Sorted(), (), (0,)),
    IndexSpec(Scan()),
    IndexSpec(Hash(), (0,)),
    IndexSpec(HashSorted(), (0,), (1,)),
]
WINDOWS = [(-30, 30), (-30, 5), (None, 12), (0, None)]


def make_condition(index: IndexSpec, window: tuple[int | None, int | None]) -> Condition:
    bands = tuple(
        Dimension(Side.LEFT, key, Bound(key, -reach), Bound(key, reach)) for key, reach in ((0, 3), (1, 9))
    )
    ends = (None if end is None else Bound(TIME, end) for end in window)
    sides = tuple(SideSpec(alias, COLUMNS, (), KEYS, Key("ts", Domain.INT)) for alias in "ab")
    return Condition(
        sides, (Equality(2, 2),) if index.equalities else (), bands, Dimension(Side.LEFT, TIME, *ends)
    )


def draw(random: np.random.Generator, n: int, first: int, last: int) -> pa.RecordBatch:
    columns = {"x": random.integers(0, 20, n), "y": random.integers(0, 60, n), "k": random.integers(0, 4, n)}
    return pa.RecordBatch.from_pydict(
        {"ts": np.sort(random.integers(first, last, n)) + random.integers(0, 9, n)} | columns
    )


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.shape.name)
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 30, 10**6]), st.booleans())
def test_probes_in_stretches_find_their_partners(
    index: IndexSpec, window: tuple[int | None, int | None], seed: int, stretch: int, has_one: bool
) -> None:
    random = np.random.default_rng(seed)
    plan = IndexPlan(make_condition(index, window), Side.RIGHT, index)
    # 1. Store segments, whose times overlap.
    store, metas, stored = MemoryStore(), [], []
    for start in (0, 25, 50, 400):
        run = build(plan, draw(random, ROWS, start, start + 60))
        metas.append(describe(1, 0, run))
        store.put(metas[-1], run)
        stored.append(run.payload)
    # 2. Probe with a selection of tuples.
    tuples = draw(random, PROBES, 0, 200)
    places = np.sort(random.choice(PROBES, 70, replace=False))
    rows = encode_key_rows(Side.LEFT, plan.condition, tuples).take(places, axis=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probing, "STRETCH", stretch)
        patch.setattr(probing, "UNLIKE", 1e-9)
        patch.setattr(probing, "FEWEST", 4)
        pieces = list(probe_segments(metas, store, plan, rows, RowFacts(tuples), has_one, places))
    found = sorted(
        (probe, tuple(one.payload.slice(row, 1).to_pylist()[0].values()))
        for one in pieces
        for probe, row in zip(one.probes.tolist(), one.stored.tolist(), strict=True)
    )
    # 3. Compare with a nested loop.
    low, high = window
    partners = [one for batch in stored for one in batch.to_pylist()]
    mine = tuples.to_pylist()
    wanted = sorted(
        (int(p), tuple(one.values()))
        for p in places
        for one in partners
        if abs(one["x"] - mine[p]["x"]) <= 3
        and abs(one["y"] - mine[p]["y"]) <= 9
        and (not index.equalities or one["k"] == mine[p]["k"])
        and (low is None or mine[p]["ts"] >= one["ts"] + low)
        and (high is None or mine[p]["ts"] <= one["ts"] + high)
    )
    if has_one:
        assert {probe for probe, _ in found} == {probe for probe, _ in wanted}
        assert set(found) <= set(wanted)
    else:
        assert found == wanted


def test_a_few_wrong_times_do_not_cut_the_other_probes() -> None:
    """One tuple with a wrong time made eight stretches of probes with one window, and they took 2.8 times as
    long."""
    times = np.arange(8 * probing.STRETCH)
    times[[0, -1]] = -(10**15), 10**15
    length = 10 * len(times)
    assert probing._count_stretches(Span(times - length, times + length)) == 1
    assert probing._count_stretches(Span(times - 9, times + 9)) == 8
