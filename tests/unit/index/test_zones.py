"""A probe passes rows that a second conjunct excludes: few candidates, and the pairs of the nested loop."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import oracle
from tests.support.draws import draw_cases
from tests.support.local import LocalJoin
from tests.support.strategies import TYPES, conditions, index_specs
from thetastream.core.blocks import RowFacts
from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.probing import probe_segments
from thetastream.engine.store.run import build
from thetastream.engine.store.segment import MemoryStore, describe
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.index import REGISTRY, IndexSpec, zones
from thetastream.index.zones import build_zones
from thetastream.kernels import walk
from thetastream.lowering.lower import choose_index
from thetastream.models import Biclique

N, PROBES = 20_000, 500
X, Y = 0, 1
SPREAD = 10**7


def make_condition(*dimensions: Dimension) -> Condition:
    keys = Key("x", Domain.INT), Key("y", Domain.INT)
    left, right = (SideSpec(alias, ("id",), ("x", "y"), keys) for alias in "ab")
    return Condition((left, right), dimensions=dimensions)


def make_batch(x: Int64s, y: Int64s) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": np.arange(len(x)), "x": x, "y": y})


def search(
    condition: Condition, index: IndexSpec, *sides: pa.RecordBatch, has_one: bool = False
) -> tuple[Counter[tuple[int, int]], int]:
    """Probe a run of right tuples with left tuples; return the pairs, and the number of candidates."""
    left, right = sides
    plan = IndexPlan(condition, Side.RIGHT, index)
    run, store = build(plan, right), MemoryStore()
    meta = describe(Side.RIGHT, 0, run)
    store.put(meta, run)
    keys = encode_key_rows(Side.LEFT, condition, left)
    found: Counter[tuple[int, int]] = Counter()
    candidates = 0
    for one in probe_segments([meta], store, plan, keys, RowFacts(left), has_one):
        ids = left["id"].take(one.probes).to_pylist(), one.payload["id"].take(one.stored).to_pylist()
        found.update(zip(*ids, strict=True))
        candidates += one.n_compared
    return found, candidates


def draw_uniform(seed: int, n: int = N) -> Int64s:
    return np.random.default_rng(seed).integers(0, SPREAD, n)


def test_a_block_of_the_kernel_has_as_many_rows_as_a_zone() -> None:
    assert walk.BLOCK == zones.BLOCK


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 65, 4097])
def test_zones_have_the_least_and_the_greatest_values(n: int) -> None:
    rows = np.random.default_rng(n).integers(-50, 50, (n, 3))
    found, blocks = build_zones(rows, [2, 0]), [rows]
    expected = []
    while n and (len(blocks) > 1 or not expected):
        width = zones.BLOCK ** (1 + len(expected))
        blocks = [rows[start : start + width] for start in range(0, n, width)]
        expected.append([[f(b[:, c]) for c in (2, 0) for f in (np.min, np.max)] for b in blocks])
    assert found.tolist() == [zone for level in expected for zone in level]


def test_one_long_range_does_not_make_a_probe_read_the_others() -> None:
    """A range that covers 20,000 others: a probe reads its partners and some blocks beside them."""
    condition = make_condition(Dimension(Side.LEFT, X, Bound(X), Bound(Y, 0, True)))
    low = np.append(np.arange(N) * 100, 0)
    high = np.append(low[:-1] + 90, N * 100)
    x = draw_uniform(1, PROBES) % (N * 100)
    index, _ = choose_index(condition)
    assert index.shape.name == "sorted"
    pairs, candidates = search(condition, index, make_batch(x, x), make_batch(low, high))
    assert sum(pairs.values()) == np.sum((x[:, None] >= low) & (x[:, None] < high))
    assert candidates < 40 * PROBES


STRICT = {
    "x < and y <": (Bound(X, 0, True), Bound(Y, 0, True), 1),
    "x < and y >": (Bound(X, 0, True), Bound(Y, 0, True), -1),
}


@pytest.mark.parametrize("case", STRICT)
def test_two_inequalities_that_are_rarely_true_together_leave_few_candidates(case: str) -> None:
    """Each inequality alone is true for half of the pairs, and both together for few.

    The columns of one side lie far apart, as salaries and taxes do, so they do not look like intervals.
    """
    x_bound, y_bound, sign = STRICT[case]
    y_dimension = (
        Dimension(Side.LEFT, Y, None, y_bound) if sign > 0 else Dimension(Side.LEFT, Y, y_bound, None)
    )
    condition = make_condition(Dimension(Side.LEFT, X, None, x_bound), y_dimension)
    sides = []
    for seed, n in ((1, PROBES), (2, N)):
        x = draw_uniform(seed, n)
        y = (SPREAD - x if sign > 0 else x) // 5 + draw_uniform(seed + 2, n) // 2000
        sides.append(make_batch(x, y))
    index, _ = choose_index(condition)
    pairs, candidates = search(condition, index, *sides)
    (x, y), (other_x, other_y) = ([side[name].to_numpy() for name in "xy"] for side in sides)
    is_pair = (x[:, None] < other_x) & (y[:, None] * sign < other_y * sign)
    assert sum(pairs.values()) == is_pair.sum()
    assert 0 < is_pair.sum() < 50 * PROBES
    assert candidates < 5 * is_pair.sum() + 50 * PROBES


def test_a_wide_band_leaves_the_candidates_of_the_inequality() -> None:
    condition = make_condition(
        Dimension(Side.LEFT, X, Bound(X, -SPREAD // 4), Bound(X, SPREAD // 4)),
        Dimension(Side.LEFT, Y, Bound(Y, 0, True), None),
    )
    left = make_batch(draw_uniform(1, PROBES), draw_uniform(2, PROBES) // 1000)
    right = make_batch(draw_uniform(3), draw_uniform(4))
    index, _ = choose_index(condition)
    assert index.shape.name == "sorted"
    pairs, candidates = search(condition, index, left, right)
    assert candidates < 12 * sum(pairs.values()) + 50 * PROBES < N // 4 * PROBES


def test_one_huge_rectangle_does_not_make_a_probe_read_the_others() -> None:
    """Points in 20,000 rectangles and one that covers all of them."""
    keys = tuple(Key(name, Domain.INT) for name in ("x", "y", "right", "top"))
    left, right = (SideSpec(alias, ("id",), ("x", "y", "right", "top"), keys) for alias in "ab")
    dimensions = tuple(Dimension(Side.LEFT, n, Bound(n), Bound(n + 2)) for n in (X, Y))
    condition = Condition((left, right), dimensions=dimensions)
    columns = [np.append(draw_uniform(seed), 0) for seed in (1, 2)]
    columns += [np.append(column[:-1] + SPREAD // 100, SPREAD) for column in columns]
    rectangles = pa.RecordBatch.from_pydict(
        {"id": np.arange(N + 1), **dict(zip(("x", "y", "right", "top"), columns, strict=True))}
    )
    x, y = draw_uniform(5, PROBES), draw_uniform(6, PROBES)
    points = pa.RecordBatch.from_pydict({"id": np.arange(PROBES), "x": x, "y": y, "right": x, "top": y})
    index, _ = choose_index(condition)
    assert index.shape.name == "grid"
    pairs, candidates = search(condition, index, points, rectangles)
    inside = [
        (p[:, None] >= low) & (p[:, None] <= high)
        for p, low, high in zip((x, y), columns[:2], columns[2:], strict=True)
    ]
    assert sum(pairs.values()) == (inside[0] & inside[1]).sum()
    assert candidates < N // 8 * PROBES


@pytest.mark.parametrize("shape", ["sorted", pytest.param("intervals", marks=pytest.mark.slow)])
def test_one_partner_is_enough_for_a_semi_join(shape: str) -> None:
    """Without an end, each probe reads half of the table."""
    condition = make_condition(
        Dimension(Side.LEFT, X, Bound(X), None), Dimension(Side.LEFT, X, None, Bound(Y))
    )
    low = draw_uniform(1)
    batches = make_batch(draw_uniform(2, PROBES), draw_uniform(2, PROBES)), make_batch(low, low + SPREAD // 2)
    fit = IndexSpec(REGISTRY[shape], (), (0, 1) if shape == "intervals" else (0,))
    every, all_candidates = search(condition, fit, *batches)
    first, candidates = search(condition, fit, *batches, has_one=True)
    assert set(first) <= set(every)
    assert Counter(n for n, _ in first) == Counter({n for n, _ in every})
    assert candidates <= 30 * PROBES < all_candidates / 50


SPECIAL = {Domain.INT: [-(2**63), 2**63 - 1], Domain.FLOAT: [float("nan"), float("inf"), float("-inf"), -0.0]}


def draw_rows(
    condition: Condition, side: Side, random: np.random.Generator, n: int, is_wild: bool
) -> list[Mapping[str, Any]]:
    """Draw rows without NULL keys, as the filters before a unit leave them."""
    columns: dict[str, Any] = {"id": range(n), "t": random.integers(0, 60, n).tolist()}
    for key in condition.sides[side].keys:
        values = random.integers(-n // 4, n // 4, n).tolist()
        if key.domain is Domain.FLOAT:
            values = [float(value) for value in values]
        if is_wild and not key.offset:
            places = random.integers(0, n, n // 8).tolist()
            for place in places:
                special = SPECIAL[key.domain]
                values[place] = special[int(random.integers(len(special)))]
            for place in random.integers(0, n, n // 8).tolist():
                values[place] = None
        columns[key.column] = values
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return [row for row in rows if None not in row.values()]


def make_block(condition: Condition, side: Side, rows: list[Mapping[str, Any]]) -> pa.RecordBatch:
    types = {"id": pa.int64(), "t": pa.int64()}
    types |= {key.column: TYPES[key.domain] for key in condition.sides[side].keys}
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(types.items())))


@draw_cases(60)
@given(data=st.data(), condition=conditions(), seed=st.integers(0, 10**6), is_wild=st.booleans())
def test_every_shape_finds_the_pairs_of_the_nested_loop(
    data: st.DataObject, condition: Condition, seed: int, is_wild: bool
) -> None:
    random = np.random.default_rng(seed)
    sizes = 25, 300
    rows = [draw_rows(condition, side, random, n, is_wild) for side, n in zip(Side, sizes, strict=True)]
    blocks = [make_block(condition, side, some) for side, some in zip(Side, rows, strict=True)]
    if not all(rows):
        return
    expected = oracle.join(condition, *rows)
    index = data.draw(index_specs(condition))
    assert search(condition, index, *blocks)[0] == expected
    first, _ = search(condition, index, *blocks, has_one=True)
    assert Counter(n for n, _ in first) == Counter({n for n, _ in expected})
    assert set(first) <= set(expected)


def test_units_of_streams_read_few_candidates_beside_a_long_range() -> None:
    condition = make_condition(Dimension(Side.LEFT, X, Bound(X), Bound(Y, 0, True)))
    index, _ = choose_index(condition)
    join = LocalJoin(UnitSpec(condition, (index, index), None), Biclique((1, 1)))
    low = np.append(np.arange(N) * 100, 0)
    ranges = make_batch(low, np.append(low[:-1] + 90, N * 100))
    x = draw_uniform(1, PROBES) % (N * 100)
    list(join.epoch(None, ranges))
    pairs = sum(matches.left.num_rows for matches in join.epoch(make_batch(x, x), None))
    assert pairs > PROBES
    assert sum(counters.candidates for counters in join.counters) < 40 * PROBES
