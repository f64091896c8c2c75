"""Models: every pair meets at a unit, units are filled evenly, and bad settings are refused."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from thetastream.core.errors import QueryError
from thetastream.core.sides import Role, Side
from thetastream.models import Biclique, Hashes, Matrix, Places, Split

N = 4000
CHANCE = np.random.default_rng(1)
KEYS = CHANCE.integers(0, 2**62, N)
UNEVEN = [Biclique(((1, 4), (2, 1, 2))), Biclique((3, (1, 3)), subgroups=(3, 2))]
NUMBERS = {side: CHANCE.integers(0, 2**62, N) for side in Side}
HASHES = {side: Hashes(partial(NUMBERS.get, side), lambda: Places(KEYS, KEYS, KEYS)) for side in Side}
"""Tuples of both sides with equal keys and different hashes."""
MODELS = [
    Biclique(1),
    Biclique((3, 2)),
    Biclique((3, 2), subgroups=(3, 1)),
    Biclique((5, 4), subgroups=(2, 4)),
    Matrix(),
    Matrix(2, 3),
    Matrix(5, 1, subgroups=(3, 1)),
    Matrix(1, 3, subgroups=(1, 3)),
    Matrix(4, 3, subgroups=(2, 3)),
]


def destinations(model, side, part):
    """Find the units that receive each row in a role."""
    found = [set() for _ in range(N)]
    for unit, role, rows in model.route(side, N, HASHES[side]):
        if part in role.parts:
            for row in range(N) if rows is None else rows:
                assert unit not in found[row]
                found[row].add(unit)
    return found


@pytest.mark.parametrize("model", [*MODELS, *UNEVEN], ids=repr)
def test_every_pair_that_may_join_meets_where_one_is_stored_and_the_other_probes(model):
    stored = {side: destinations(model, side, Role.STORE) for side in Side}
    probed = {side: destinations(model, side, Role.PROBE) for side in Side}
    rows = range(0, N, 97)
    for r in rows:
        # With routing by keys, only rows with equal keys may join: the left and the right row with one
        # number.
        for s in [r] if model.needs_places else rows:
            if isinstance(model, Matrix):
                assert len(stored[Side.LEFT][r] & stored[Side.RIGHT][s]) == 1
                assert stored[Side.LEFT][r] == probed[Side.LEFT][r]
            else:
                assert stored[Side.LEFT][r] <= probed[Side.RIGHT][s]
                assert stored[Side.RIGHT][s] <= probed[Side.LEFT][r]
    homes = {unit for side in Side for unit in range(model.n_units) if model.counts(unit, side)}
    assert homes == set(range(model.n_units))


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_one_unit_counts_each_row(model):
    for side in Side:
        counts = np.zeros(N, dtype=int)
        for _, role, rows in model.route(side, N, HASHES[side]):
            if role.is_counted:
                counts[slice(None) if rows is None else rows] += 1
        assert (counts == 1).all()


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_units_are_filled_evenly(model):
    for side in Side:
        counts = Counter(unit for units in destinations(model, side, Role.STORE) for unit in units)
        assert max(counts.values()) < 1.2 * sum(counts.values()) / len(counts) or len(counts) == 5
        expected = model.n_units if isinstance(model, Matrix) else model.per_side[side]
        assert len(counts) == expected


@pytest.mark.parametrize("model", UNEVEN, ids=repr)
def test_the_units_of_an_uneven_subgroup_share_its_tuples_evenly(model):
    for side in Side:
        counts = Counter(unit for units in destinations(model, side, Role.STORE) for unit in units)
        for units in model.groups:
            filled = [counts[unit] for unit in units if unit in counts]
            assert all(n == pytest.approx(sum(filled) / len(filled), rel=0.15) for n in filled)
    assert sorted(unit for units in model.groups for unit in units) == list(range(model.n_units))


def test_subgroups_that_are_even_are_those_of_a_number():
    assert Biclique(((2, 2), (2, 1))) == Biclique((4, 3), subgroups=2)
    assert Biclique([[3, 1], 2]).units == ((3, 1), 2)
    assert eval(repr(UNEVEN[0])) == UNEVEN[0]


@pytest.mark.parametrize(
    ("build", "condition"),
    [
        (lambda: Biclique(0), "BAD_UNITS"),
        (lambda: Biclique(((2, 0), 1)), "BAD_UNITS"),
        (lambda: Biclique(((), 1)), "BAD_UNITS"),
        (lambda: Biclique((((1,), 2), 1)), "BAD_UNITS"),
        (lambda: Biclique(((3, 1), 2), subgroups=(3, 1)), "BAD_SUBGROUPS"),
        (lambda: Biclique(2, subgroups=3), "BAD_SUBGROUPS"),
        (lambda: Biclique((3, 2), subgroups=(3, 0)), "BAD_SUBGROUPS"),
        (lambda: Biclique(2, subgroups=2, routing="random"), "BAD_ROUTING"),
        (lambda: Biclique(2, routing="range"), "BAD_ROUTING"),
        (lambda: Biclique(2, routing="list"), "BAD_ROUTING"),
        (lambda: Split(0), "BAD_UNITS"),
        (lambda: Split((1, 2)), "BAD_UNITS"),
        (lambda: Matrix(2, 0), "BAD_UNITS"),
        (lambda: Matrix(True, 1), "BAD_UNITS"),
        (lambda: Matrix(2, 1, 3), "BAD_SUBGROUPS"),
        (lambda: Matrix(2, 1, (1, 2)), "BAD_SUBGROUPS"),
        (lambda: Matrix(2, 1, 0), "BAD_SUBGROUPS"),
        (lambda: Matrix(2, 1, 2, "random"), "BAD_ROUTING"),
        (lambda: Matrix(2, 1, routing="hash"), "BAD_ROUTING"),
    ],
)
def test_bad_counts_are_refused_by_name(build, condition):
    with pytest.raises(QueryError) as refused:
        build()
    assert refused.value.condition == condition
