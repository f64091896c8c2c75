"""Two-phase scaling of subgroups under a constant load comes to rest, and answers a step by steps one way.

Tuples of each subgroup arrive evenly at its units and expire. Nothing else is simulated: the plan, the load
and the policy are those of a running query.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.draws import draw_cases
from thetastream.models import Biclique
from thetastream.runtime.control.change import change_plan, end_generations
from thetastream.runtime.control.plan import ControlPlan, Rules
from thetastream.runtime.control.policies import TwoPhaseScaling, UnitLoad
from thetastream.runtime.control.policies.load import LoadReader
from thetastream.runtime.control.request import Request

CAPACITY = 1_000
RULES = Rules(max_units=100_000, routings=("hash",))


@dataclass
class Query:
    """A biclique whose subgroups a policy scales. ``shares`` has the load of each subgroup of both sides."""

    policy: TwoPhaseScaling
    model: Biclique
    shares: tuple[float, ...]
    window: int
    """Epochs for which a tuple is stored."""
    plan: ControlPlan = field(init=False)
    stored: list[dict[int, float]] = field(default_factory=list)
    """For each epoch of the window, the bytes at each slot."""
    changes: list[tuple[int, ...]] = field(default_factory=list)
    """How many units each change adds to each group."""

    def __post_init__(self) -> None:
        self.plan = ControlPlan.begin(self.model)
        self.reader, self.decider = LoadReader(), self.policy.begin()
        self.second = 0

    def run(self, epochs: int, nbytes: float, is_followed: bool = True) -> None:
        """Run epochs in which each of both sides gets bytes that fill ``nbytes`` in a window."""
        for _ in range(epochs):
            newest, arrived = self.plan.newest, dict[int, float]()
            for units, share in zip(newest.model.groups, self.shares, strict=True):
                for unit in units:
                    arrived[newest.slots[unit]] = nbytes * share / self.window / len(units)
            self.stored = [*self.stored, arrived][-self.window :]
            if is_followed:
                self._follow()

    def _follow(self) -> None:
        held: dict[int, float] = defaultdict(float)
        for arrived in self.stored:
            for slot, nbytes in arrived.items():
                held[slot] += nbytes
        self.second += 1
        reports = [UnitLoad(slot, held.get(slot, 0)) for slot in self.plan.slots]
        groups = self.plan.newest.model.groups
        sizes = self.decider.decide(self.reader.read(self.second, reports, self.plan))
        if sizes is not None:
            self.changes.append(tuple(new - len(old) for new, old in zip(sizes, groups, strict=True)))
            self.plan = change_plan(self.plan, Request(model=self.plan.newest.model.resized(sizes)), RULES)
        empty = [(slot, since) for slot, since in self.plan.leaving.items() if not held.get(slot)]
        self.plan = end_generations(self.plan, empty)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(map(len, self.plan.newest.model.groups))


MARKS = st.tuples(st.integers(0, 97), st.integers(1, 98), st.integers(1, 99)).map(
    lambda three: sorted(each / 100 for each in three)
)


@st.composite
def queries(draw: st.DrawFn) -> Query:
    low, target, high = draw(MARKS.filter(lambda three: three[0] < three[1] < three[2]))
    d, e = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    units = draw(st.integers(d, 8)), draw(st.integers(e, 8))
    shares: list[float] = []
    for n in (d, e):
        weights = draw(st.lists(st.integers(0, 50), min_size=n, max_size=n).filter(sum))
        shares += [weight / sum(weights) for weight in weights]
    agree = draw(st.integers(1, 3))
    policy = TwoPhaseScaling(high, low, target, capacity=f"{CAPACITY} B", every="1 s", agree=agree)
    return Query(policy, Biclique(units, (d, e)), tuple(shares), draw(st.integers(1, 12)))


UNEVEN = Query(
    TwoPhaseScaling(capacity=f"{CAPACITY} B", every="1 s", agree=1),
    Biclique((4, 4), (4, 4), "hash"),
    (0.7, 0.1, 0.1, 0.1, 0.25, 0.25, 0.25, 0.25),
    9,
)


@draw_cases(60)
@example(UNEVEN, 4000)
@given(queries(), st.integers(0, 20_000))
def test_a_constant_load_changes_each_group_once(query: Query, nbytes: int) -> None:
    """Before, a unit that left counted for all subgroups of its side, which then grew and shrank for ever."""
    query.run(query.window, nbytes, is_followed=False)
    before = query.sizes
    query.run(6 * query.window + 30, nbytes)
    for number, share in enumerate(query.shares):
        steps = [change[number] for change in query.changes if change[number]]
        assert len(steps) <= 1
        if steps:
            needed = nbytes * share / CAPACITY / query.policy.target
            assert query.sizes[number] == before[number] + steps[0] == max(1, ceil(round(needed, 6)))


@draw_cases(30)
@given(queries(), st.integers(500, 10_000), st.integers(2, 5))
def test_a_step_of_the_load_is_answered_one_way(query: Query, nbytes: int, times: int) -> None:
    query.run(query.window, nbytes, is_followed=False)
    query.run(query.window + 30, nbytes)
    for load, sign in ((nbytes * times, 1), (nbytes, -1)):
        query.changes.clear()
        query.run(3 * query.window + 30, load)
        assert all(step * sign >= 0 for change in query.changes for step in change)
        n_changes = len(query.changes)
        query.run(3 * query.window + 30, load)
        assert len(query.changes) == n_changes
