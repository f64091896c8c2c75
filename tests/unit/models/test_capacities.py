"""Units of different strength store shares in proportion, whatever the tuples hold."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.test_spreading import CONTENTS, N, list_sent, make_batches
from thetastream.core.errors import QueryError
from thetastream.core.sides import Role
from thetastream.models import Biclique
from thetastream.models.capacities import TURNS, share_turns
from thetastream.runtime.control.change import change_plan
from thetastream.runtime.control.plan import ControlPlan, Rules, decode_model, encode_model
from thetastream.runtime.control.request import Request

CAPACITIES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9).map(tuple)


@given(CAPACITIES)
def test_turns_are_shares_that_are_spread_evenly(capacities: tuple[float, ...]) -> None:
    turns = share_turns(capacities)
    counts = np.bincount(turns, minlength=len(capacities))
    exact = TURNS * len(capacities) * np.array(capacities) / sum(capacities)
    assert counts.min() >= 1
    assert (np.abs(counts - exact) <= 1 + 1e-6).all()
    # Also a part of the turns is shared in proportion: a unit is at most one turn early or late.
    for unit, n in enumerate(counts):
        places = np.flatnonzero(turns == unit)
        assert (np.abs(places - (np.arange(n) + 0.5) * len(turns) / n) <= len(capacities) + 1).all()


@pytest.mark.parametrize("capacity", [1e-300, 1e300, 5])
def test_equal_units_take_turns(capacity: float) -> None:
    assert share_turns((capacity,) * 3)[:6].tolist() == [0, 1, 2, 0, 1, 2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(
    "model",
    [
        Biclique((3, 2), capacities=(4, 2, 1, 1, 1)),
        Biclique(((3, 1), 2), routing="hash", capacities=(4, 2, 1, 1, 1, 9)),
        Biclique((6, 1), subgroups=(2, 1), routing="hash", capacities=(4, 1, 2, 1, 1, 2, 1)),
    ],
    ids=repr,
)
def test_what_units_store_is_in_proportion_to_their_capacities(content: str, model: Biclique) -> None:
    stored = Counter[int]()
    for task in range(4):
        for (unit, role, _), n in list_sent(model, make_batches(CONTENTS[content], 3), 1, task).items():
            stored[unit] += n if role is Role.STORE else 0
    assert stored.total() == 4 * N
    assert model.capacities is not None
    n_left_groups = model.n_subgroups[0]
    for units in model.groups[:n_left_groups]:
        total = sum(stored[unit] for unit in units)
        strength = sum(model.capacities[unit] for unit in units)
        for unit in units:
            assert stored[unit] == pytest.approx(total * model.capacities[unit] / strength, rel=0.05)


def test_equal_capacities_are_none() -> None:
    assert Biclique((2, 1), capacities=[2, 2, 2]) == Biclique((2, 1))
    assert repr(Biclique((2, 1))) == "Biclique(units=(2, 1))"


@pytest.mark.parametrize("wrong", [(1, 2), (1, 2, 0), (1, 2, float("nan")), (1, 2, float("inf")), "abc", 3])
def test_what_is_refused(wrong: object) -> None:
    with pytest.raises(QueryError, match=r"BAD_CAPACITIES.*each of the 3 units"):
        Biclique((2, 1), capacities=wrong)  # type: ignore[arg-type]


def test_a_request_for_capacities_keeps_all_units() -> None:
    plan = ControlPlan.begin(Biclique((2, 1)))
    asked = Request.read(Request(sizes={"capacities": (1, 2.5, 1)}).write())
    changed = change_plan(plan, asked, Rules(3))
    assert changed.newest.model == Biclique((2, 1), capacities=(1, 2.5, 1))
    assert changed.newest.slots == plan.newest.slots
    assert not changed.leaving
    assert decode_model(encode_model(changed.newest.model)) == changed.newest.model
    # Other units are equally strong.
    grown = change_plan(changed, Request(sizes={"units": (2, 2)}), Rules(4))
    assert grown.newest.model == Biclique((2, 2))
    assert changed.newest.model.resized((1, 1)) == Biclique((1, 1))
