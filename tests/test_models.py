"""Models: where tuples go, on any stream the same answer, and what each stores and sends."""

from collections import Counter

import numpy as np
import pytest

import thetastream as th
from thetastream.errors import QueryError
from thetastream.models import Biclique, Chain, Hashes, Matrix, Places, Split
from thetastream.testing.streams import outcome, replay
from thetastream.types import Role, Side

N = 4000
CHANCE = np.random.default_rng(1)
KEYS = CHANCE.integers(0, 2**62, N)
HASHES = {side: Hashes(CHANCE.integers(0, 2**62, N), Places(KEYS, KEYS, KEYS)) for side in Side}
"""Equal keys, different tuples."""
MODELS = [
    Biclique(1),
    Biclique((3, 2)),
    Biclique((3, 2), subgroups=(3, 1)),
    Biclique((5, 4), subgroups=(2, 4)),
    Matrix(),
    Matrix(2, 3),
]


def destinations(model, side, part):
    """Per row, the units that take it in a role."""
    found = [set() for _ in range(N)]
    for unit, role, rows in model.route(side, N, HASHES[side]):
        if part in role.parts:
            for row in range(N) if rows is None else rows:
                assert unit not in found[row]
                found[row].add(unit)
    return found


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_every_pair_that_may_join_meets_where_one_is_stored_and_the_other_probes(model):
    stored = {side: destinations(model, side, Role.STORE) for side in Side}
    probed = {side: destinations(model, side, Role.PROBE) for side in Side}
    rows = range(0, N, 97)
    for r in rows:
        # With routing by keys only equal keys may join: the row and itself have them.
        for s in [r] if model.needs_places else rows:
            if isinstance(model, Matrix):
                assert len(stored[Side.LEFT][r] & stored[Side.RIGHT][s]) == 1
                assert stored[Side.LEFT][r] == probed[Side.LEFT][r]
            else:
                assert stored[Side.LEFT][r] <= probed[Side.RIGHT][s]
                assert stored[Side.RIGHT][s] <= probed[Side.LEFT][r]
    homes = {unit for side in Side for unit in range(model.n_units) if model.is_home(unit, side)}
    assert homes == set(range(model.n_units)) or isinstance(model, Matrix)
    for side in Side:
        assert all(sum(model.is_home(unit, side) for unit in units) == 1 for units in stored[side])


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_units_are_filled_evenly(model):
    for side in Side:
        counts = Counter(unit for units in destinations(model, side, Role.STORE) for unit in units)
        assert max(counts.values()) < 1.2 * sum(counts.values()) / len(counts) or len(counts) == 5
        expected = model.n_units if isinstance(model, Matrix) else model.per_side[side]
        assert len(counts) == expected


@pytest.mark.parametrize(
    ("build", "condition"),
    [
        (lambda: Biclique(0), "BAD_UNITS"),
        (lambda: Biclique(2, subgroups=3), "BAD_SUBGROUPS"),
        (lambda: Biclique((3, 2), subgroups=(3, 0)), "BAD_SUBGROUPS"),
        (lambda: Biclique(2, subgroups=2, routing="random"), "BAD_ROUTING"),
        (lambda: Biclique(2, routing="range"), "BAD_ROUTING"),
        (lambda: Biclique(2, routing="list"), "BAD_ROUTING"),
        (lambda: Split(0), "BAD_UNITS"),
        (lambda: Split((1, 2)), "BAD_UNITS"),
        (lambda: Matrix(2, 0), "BAD_UNITS"),
        (lambda: Matrix(True, 1), "BAD_UNITS"),
    ],
)
def test_bad_counts_are_refused_by_name(build, condition):
    with pytest.raises(QueryError) as refused:
        build()
    assert refused.value.condition == condition


def test_subgroups_need_an_equality_or_a_band(spark):
    frame = spark.range(3)
    with pytest.raises(QueryError, match="NOT_ROUTABLE"):
        th.plan({"a": frame, "b": frame}, on="a.id < b.id", model=Biclique(2, subgroups=2))


@pytest.mark.parametrize(
    ("model", "copies"),
    [
        pytest.param(Split(2), (1, 1), marks=pytest.mark.slow),
        pytest.param(Biclique((2, 3), (2, 2)), (1, 1), marks=pytest.mark.slow),
        pytest.param(Chain(3, fast_forward=True), (1, 1), marks=pytest.mark.slow),
        (Matrix(1, 3), (3, 1)),
    ],
    ids=repr,
)
def test_models_agree_on_streams_and_store_what_they_should(spark, tmp_path, model, copies):
    rows = [(n, n % 17, n * 37 % 50, float(n // 2)) for n in range(400)]
    frame = spark.createDataFrame(rows, "id INT, k INT, v INT, s DOUBLE").selectExpr(
        "id", "k", "v", "timestamp_seconds(s) AS ts"
    )
    ids = [list(range(n, n + 100)) for n in range(0, 400, 100)]
    ids[2].append(3)  # late by then
    wanted = Counter(
        (a, b)
        for a, ak, av, at in rows
        for b, bk, bv, bt in rows
        if ak == bk and av >= bv and abs(at - bt) <= 60
    )
    streams = {alias: replay(frame, ids, tmp_path).withWatermark("ts", "10 seconds") for alias in "ab"}
    pairs = th.join(streams, on="a.k = b.k AND a.v >= b.v", within="60 seconds", model=model)
    found = outcome(pairs, ["a.id", "b.id"], tmp_path)
    assert found.rows == wanted
    assert sum(epoch["stored"] for epoch in found.metrics) == 400 * sum(copies)
    assert sum(epoch["late"] for epoch in found.metrics) == 2
