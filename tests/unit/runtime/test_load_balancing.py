"""A policy gives weak units fewer tuples: their work comes to rest, and then nothing changes any more."""

from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

import thetastream as th
from tests.support.draws import draw_cases
from thetastream.models import Biclique, Split
from thetastream.runtime.control.change import change_plan
from thetastream.runtime.control.following import FollowedPolicy
from thetastream.runtime.control.plan import ControlPlan, Rules
from thetastream.runtime.control.policies import UnitLoad, encode_policy, list_policies, make_policy
from thetastream.runtime.control.request import Request

RULES = Rules(max_units=10, routings=("hash",))
POLICY = encode_policy(th.LoadBalancing(factor=1.2, every="5 seconds"))


@dataclass
class Query:
    """A biclique whose units need different times for a byte. An epoch is a second long."""

    speeds: dict[int, float]
    window: int
    plan: ControlPlan = field(default_factory=lambda: ControlPlan.begin(Biclique((3, 2))))
    policy: FollowedPolicy = field(default_factory=lambda: FollowedPolicy(POLICY))
    stored: list[dict[int, float]] = field(default_factory=list)
    """For each epoch of the window, the bytes at each slot."""
    n_changes: int = 0
    second: int = 0

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.second += 1
            newest, arrived = self.plan.newest, dict[int, float]()
            capacities = getattr(newest.model, "capacities", None) or (1,) * newest.model.n_units
            for units in newest.model.groups:
                whole = sum(capacities[unit] for unit in units)
                for unit in units:
                    arrived[newest.slots[unit]] = 1e6 * capacities[unit] / whole
            self.stored = [*self.stored, arrived][-self.window :]
            reports = [UnitLoad(slot, nbytes, self.work(slot)) for slot, nbytes in self.held.items()]
            request = self.policy.decide(self.second, reports, self.plan)
            if request is not None:
                changed = change_plan(self.plan, Request.read(request.write()), RULES)
                assert changed.newest.slots == newest.slots
                self.n_changes += 1
                self.plan = changed

    @property
    def held(self) -> dict[int, float]:
        held: dict[int, float] = defaultdict(float)
        for arrived in self.stored:
            for slot, nbytes in arrived.items():
                held[slot] += nbytes
        return held

    def work(self, slot: int) -> float:
        """How long a unit works: for the bytes that it holds, and for each tuple of the other stream."""
        return (self.held[slot] + 3e4 * self.window) / 1e8 / self.speeds[slot]

    def find_excess(self) -> float:
        """How many times as long as the mean of its group the slowest unit works."""
        newest = self.plan.newest
        times = [[self.work(newest.slots[unit]) for unit in units] for units in newest.model.groups]
        return max(max(group) * len(group) / sum(group) for group in times)


@given(st.lists(st.floats(0.3, 3), min_size=5, max_size=5), st.integers(1, 40))
@draw_cases(60)
def test_units_of_any_strength_come_to_rest(speeds: list[float], window: int) -> None:
    query = Query(dict(enumerate(speeds)), window)
    query.run(200)
    assert query.find_excess() <= 1.3
    n_changes = query.n_changes
    assert n_changes <= 8
    query.run(100)
    assert query.n_changes == n_changes


def test_units_of_one_strength_stay_as_they_are() -> None:
    query = Query(dict.fromkeys(range(5), 1.0), 10)
    query.run(60)
    assert query.n_changes == 0


def test_a_unit_that_gets_weak_later_is_noticed() -> None:
    query = Query(dict.fromkeys(range(5), 1.0), 10)
    query.run(60)
    query.speeds[1] = 0.25
    query.run(2)
    before = query.find_excess()
    query.run(60)
    assert before > 1.5
    assert query.find_excess() <= 1.2
    model = query.plan.newest.model
    assert isinstance(model, Biclique)
    assert model.capacities is not None
    assert model.capacities.index(min(model.capacities)) == 1


def test_a_unit_that_has_not_worked_has_no_capacity() -> None:
    policy, plan = FollowedPolicy(POLICY), ControlPlan.begin(Biclique((2, 1)))
    reports = [UnitLoad(0, 10, 1), UnitLoad(1, 10, 9)]
    assert [policy.decide(second, reports, plan) for second in range(20)] == [None] * 20


def test_models_without_shares_are_refused() -> None:
    follow = Request(policy=POLICY)
    with pytest.raises(th.QueryError, match=r"CANNOT_SCALE.*load-balancing changes capacities.*Biclique"):
        change_plan(ControlPlan.begin(Split(3)), follow, RULES)
    followed = change_plan(ControlPlan.begin(Biclique((2, 2))), follow, RULES)
    with pytest.raises(th.QueryError, match=r"CANNOT_SCALE.*follow\(None\)"):
        change_plan(followed, Request(model=Split(2)), RULES)
    without = change_plan(followed, Request(model=Split(2), policy={}), RULES)
    assert without.newest.model == Split(2)


def test_it_is_found_by_its_name() -> None:
    assert "load-balancing" in list_policies()
    assert make_policy("load-balancing", {"factor": 2}) == th.LoadBalancing(factor=2)
    for wrong in ({"factor": 1}, {"factor": "2"}, {"every": "0 seconds"}):
        with pytest.raises(th.QueryError, match="POLICY"):
            make_policy("load-balancing", wrong)
