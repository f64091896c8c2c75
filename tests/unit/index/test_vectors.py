"""Similarity of vectors: what tiles propose includes every pair that the exact comparison takes."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thetastream.core.condition import RankedPair
from thetastream.core.errors import PredicateError
from thetastream.core.how import MeasuredRanking, select_nearest
from thetastream.core.measure import LimitSearch, MeasureLimit, NearestSearch, Ranges, compare, pair_all
from thetastream.index.measures import REGISTRY, vector_matrix
from thetastream.index.measures import vectors as vectors_module
from thetastream.index.measures.vectors import VectorMeasure

MEASURES = [measure for measure in REGISTRY.values() if isinstance(measure, VectorMeasure)]
OPS = ("<", "<=", ">", ">=")
ODD = (0.0, -0.0, math.nan, math.inf, -math.inf, 3e38, 1e-44, 1e-30, 1e25)


def draw_vectors(
    random: np.random.Generator, n: int, size: int, is_odd: bool
) -> list[list[float | None] | None]:
    """Draw vectors of one size; if ``is_odd``, some are NULL, or have odd elements."""
    found: list[list[float | None] | None] = []
    scale = 10.0 ** random.integers(-3, 4)
    for _ in range(n):
        vector: list[float | None] = [float(x) for x in (random.normal(size=size) * scale).astype(np.float32)]
        what = random.integers(8) if is_odd else 7
        if what == 0:
            found.append(None)
            continue
        if what < 3 and size:
            vector[random.integers(size)] = (*ODD, None)[random.integers(len(ODD) + 1)]
        elif what == 3:
            vector = [0.0] * size
        elif what == 4 and found:
            vector = found[random.integers(len(found))] or vector
        found.append(vector)
    return found


def list_pairs(
    measure: VectorMeasure, left: pa.Array, right: pa.Array, op: str, limit: float
) -> set[tuple[int, int]]:
    """List the pairs of which the comparison is true, without tiles."""
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    is_true = compare(measure.compute(left, i, right, j), op, limit)
    return set(zip(i[is_true].tolist(), j[is_true].tolist(), strict=True))


@pytest.mark.parametrize("has_heads", [False, True])
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_tiles_propose_every_pair_of_the_exact_comparison(seed: int, has_heads: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if has_heads:
            for module, values in (
                (vector_matrix, {"HEAD": 3, "BASIS_ROWS": 5}),
                (vectors_module, {"LEAST_FLOATS": 6, "LEAST_PAIRS": 0, "FEW": 1}),
            ):
                for name, value in values.items():
                    patch.setattr(module, name, value)
        check_proposals(np.random.default_rng(seed))


def check_proposals(random: np.random.Generator) -> None:
    measure = MEASURES[random.integers(len(MEASURES))]
    size, is_odd = int(random.integers(0, 40)), bool(random.integers(2))
    left, right = (
        pa.array(draw_vectors(random, int(random.integers(0, 30)), size, is_odd), pa.list_(pa.float32()))
        for _ in range(2)
    )
    i, j = (part.ravel() for part in np.indices((len(left), len(right))))
    found = measure.compute(left, i, right, j).values
    # The limit is the value of a pair, or the float beside it.
    limit = float(random.normal())
    if len(found):
        limit = float(found[random.integers(len(found))])
        limit = (
            float(np.nextafter(np.float32(limit), np.float32(random.choice([-9, 9]))))
            if random.integers(2)
            else limit
        )
    if math.isnan(limit):
        limit = 0.5
    op = OPS[random.integers(4)]
    places = random.permutation(len(left))
    start, stop = sorted(int(n) for n in random.integers(0, len(right) + 1, 2))
    proposed: list[tuple[int, int]] = []
    proved: list[tuple[int, int]] = []
    comparison = MeasureLimit(measure, op, limit)
    derived = measure.derive(left), measure.derive(right)
    rows = start + random.permutation(stop - start)
    for one in measure.propose(LimitSearch(comparison, derived[0], places, derived[1], rows), 7):
        pairs = [*zip(places[one.probes].tolist(), rows[one.stored].tolist(), strict=True)]
        proposed += pairs
        proved += pairs if one.is_proved else []
    assert len(set(proposed)) == len(proposed)
    wanted = {(p, s) for p, s in list_pairs(measure, left, right, op, limit) if start <= s < stop}
    assert set(proved) <= wanted <= set(proposed)
    assert all(start <= s < stop for _, s in proposed)


@pytest.mark.parametrize("measure", MEASURES, ids=lambda one: one.name)
def test_heads_leave_few_pairs_of_vectors_near_a_subspace(measure: VectorMeasure) -> None:
    """What a head leaves includes the true pairs, and it is used only if it leaves few."""
    random = np.random.default_rng(7)
    scale = 1 / (1 + np.arange(192)) ** 2
    left, right = ((random.normal(size=(n, 192)) * scale).astype(np.float32) for n in (3000, 4000))
    right[::40] = left[:100] * np.float32(1.001)
    columns = [pa.array([*vectors], pa.list_(pa.float32())) for vectors in (left, right)]
    mine, theirs = map(measure.derive, columns)
    value = {"vector_l2_distance": 0.01, "vector_cosine_similarity": 0.999999}.get(measure.name, 8.0)
    limit = MeasureLimit(measure, "<=" if measure.name == "vector_l2_distance" else ">=", value)
    search = LimitSearch(limit, mine, np.arange(3000), theirs, np.arange(4000))
    pieces = [*measure.propose(search, 10_000)]
    assert "heads" in vars(theirs)
    probes, rows = (np.concatenate([piece[n] for piece in pieces]) for n in (0, 1))
    found = compare(measure.compute(columns[0], probes, columns[1], rows), limit.op, value)
    assert 100 <= found.sum() <= len(found) < 12_000_000 // 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "LEAST_FLOATS", 193)
        pieces = [*measure.propose(search, 10_000)]
    others, columns_of_others = (np.concatenate([piece[n] for piece in pieces]) for n in (0, 1))
    is_true = compare(measure.compute(columns[0], others, columns[1], columns_of_others), limit.op, value)
    wanted = {*zip(others[is_true].tolist(), columns_of_others[is_true].tolist(), strict=True)}
    assert {*zip(probes[found].tolist(), rows[found].tolist(), strict=True)} == wanted


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_nearest_of_all_partners_are_proposed(seed: int) -> None:
    """Ties with the last are too, and so are values beside it. Some pairs are no partners."""
    random = np.random.default_rng(seed)
    measure = MEASURES[random.integers(len(MEASURES))]
    size, is_odd = int(random.integers(0, 30)), bool(random.integers(2))
    columns = []
    for _ in range(2):
        vectors = draw_vectors(random, int(random.integers(0, 40)), size, is_odd)
        for n in range(1, len(vectors), 3):  # one float is the next one
            before = vectors[n - 1]
            if before and before[0] is not None:
                vectors[n] = [float(np.nextafter(np.float32(before[0]), np.float32(9))), *before[1:]]
        columns.append(pa.array(vectors, pa.list_(pa.float32())))
    k, is_descending, seekers_probe = int(random.integers(1, 5)), *map(bool, random.integers(2, size=2))
    rows = [random.permutation(len(column))[: random.integers(len(column) + 1)] for column in columns]
    n_probes, n_stored = (len(one) for one in (rows if seekers_probe else rows[::-1]))
    low = random.integers(0, 3, (n_probes, 2))
    inside = Ranges(low, low + random.integers(0, 3, (n_probes, 2)), random.integers(0, 4, (n_stored, 2)))
    best = np.full((len(rows[0]), k), -np.inf, dtype=np.float32)
    derived = [measure.derive(column) for column in columns]
    search = NearestSearch(
        is_descending, derived[0], rows[0], derived[1], rows[1], best, inside, seekers_probe
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors_module, "TILE_ROWS", 5)
        patch.setattr(vectors_module, "TILE_SEEKERS", 3)
        pieces = [*measure.propose_nearest(search, 7)]
    proposed = [pair for piece in pieces for pair in zip(*(part.tolist() for part in piece), strict=True)]
    assert len(set(proposed)) == len(proposed)
    # The expected pairs, by all pairs.
    i, j = (part.ravel() for part in np.indices((len(rows[0]), len(rows[1]))))
    probes, stored = (i, j) if seekers_probe else (j, i)
    keys = inside.keys[stored]
    is_partner = ((inside.low[probes] <= keys) & (keys <= inside.high[probes])).all(axis=1)
    i, j = i[is_partner], j[is_partner]
    batches = [pa.RecordBatch.from_arrays([column], names=["v"]) for column in columns]
    ranking = MeasuredRanking(RankedPair(k, ("v", "v"), measure, is_descending))
    ranks = ranking.rank_pairs(batches[0], rows[0][i], batches[1], rows[1][j])
    chosen = select_nearest(i, ranks, k)
    assert set(zip(i[chosen].tolist(), j[chosen].tolist(), strict=True)) <= set(proposed)


def test_few_pairs_beside_the_nearest_are_proposed() -> None:
    random = np.random.default_rng(8)
    column = pa.array(list(random.normal(size=(900, 48)).astype(np.float32)), pa.list_(pa.float32()))
    rows, none = np.arange(900), np.zeros((900, 0), dtype=np.int64)
    for measure in MEASURES:
        vectors, best = measure.derive(column), np.full((900, 10), -np.inf, dtype=np.float32)
        inside = Ranges(none, none, none)
        search = NearestSearch(True, vectors, rows, vectors, rows, best, inside, True)
        n_proposed = sum(len(found) for found, _ in measure.propose_nearest(search, 1 << 17))
        assert 9000 <= n_proposed < 9010


def test_few_other_pairs_are_proposed() -> None:
    random = np.random.default_rng(7)
    column = pa.array(list(random.normal(size=(300, 64)).astype(np.float32)), pa.list_(pa.float32()))
    for measure, op, limit in zip(MEASURES, (">=", ">=", "<="), (0.3, 20.0, 9.0), strict=True):
        vectors = measure.derive(column)
        every = np.arange(300)
        search = LimitSearch(MeasureLimit(measure, op, limit), vectors, every, vectors, every)
        pieces = measure.propose(search, 1 << 17)
        n_proposed = sum(len(one.probes) for one in pieces)
        assert 300 <= len(list_pairs(measure, column, column, op, limit)) <= n_proposed
        assert n_proposed <= len(list_pairs(measure, column, column, op, limit)) + 2


def test_pairs_far_from_the_limit_are_proved() -> None:
    random = np.random.default_rng(9)
    column = pa.array(list(random.normal(size=(300, 64)).astype(np.float32)), pa.list_(pa.float32()))
    for measure, op in zip(MEASURES, ("<", "<", ">"), strict=True):
        vectors, limit = measure.derive(column), 9.0 if measure.name == "vector_l2_distance" else 0.1
        comparison = MeasureLimit(measure, op, limit)
        every = np.arange(300)
        pieces = [*measure.propose(LimitSearch(comparison, vectors, every, vectors, every), 1 << 17)]
        n_proved = sum(len(one.probes) for one in pieces if one.is_proved)
        assert n_proved >= len(list_pairs(measure, column, column, op, limit)) - 2 > 30_000


@pytest.mark.parametrize("measure", MEASURES, ids=lambda one: one.name)
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("limit", [-math.inf, -np.finfo("f8").max, np.finfo("f8").max, math.inf])
def test_all_pairs_satisfy_a_huge_limit_or_none_does(measure: VectorMeasure, op: str, limit: float) -> None:
    """The linear form of the limit may overflow, which warns nobody."""
    rows = np.random.default_rng(5).normal(size=(9, 3)) * np.geomspace(1e-3, 1e3, 9)[:, None]
    column, every = pa.array(rows.tolist(), pa.list_(pa.float32())), np.arange(9)
    vectors = measure.derive(column)
    search = LimitSearch(MeasureLimit(measure, op, limit), vectors, every, vectors, every)
    proposed, proved = Counter[tuple[int, int]](), set[tuple[int, int]]()
    for one in measure.propose(search, 7):
        pairs = [*zip(one.probes.tolist(), one.stored.tolist(), strict=True)]
        proposed.update(pairs)
        proved.update(pairs if one.is_proved else [])
    wanted = list_pairs(measure, column, column, op, limit)
    assert len(wanted) in (0, 81)
    assert proved <= wanted <= proposed.keys()
    assert set(proposed.values()) <= {1}


def test_vectors_of_two_sizes_are_refused_when_they_meet() -> None:
    column = pa.array([[1.0, 2.0], [1.0, 2.0], [3.0]], pa.list_(pa.float32()))
    measure = REGISTRY["vector_cosine_similarity"]
    vectors = measure.derive(column)
    limit = MeasureLimit(measure, ">=", 0.5)
    pieces = list(measure.propose(LimitSearch(limit, vectors, np.array([0]), vectors, np.arange(3)), 100))
    assert {(int(p), int(s)) for piece in pieces for p, s in zip(*piece[:2], strict=True)} == {
        (0, 0),
        (0, 1),
        (0, 2),
    }
    with pytest.raises(PredicateError, match=r"VECTOR_DIMENSION.* of 2 floats met one of 1"):
        measure.compute(column, np.array([0]), column, np.array([2]))


def test_all_pairs_come_in_pieces() -> None:
    pieces = list(pair_all(np.array([1, 2]), np.array([5, 6, 7]), 4))
    assert [len(p) for p, _ in pieces] == [4, 2]
    assert len({pair for p, s in pieces for pair in zip(p.tolist(), s.tolist(), strict=True)}) == 6
