"""Units of joins that answer each tuple change while they run: plans, random schedules, broken variants."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.controlled_answers import KINDS, AnswersSchedule
from thetastream.core.columns import TUPLE
from thetastream.core.errors import QueryError
from thetastream.core.sides import Role, Side
from thetastream.engine.answers import unit
from thetastream.engine.answers.candidates import CandidatesUnit
from thetastream.engine.answers.deciding import DecidingUnit
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import ALONE
from thetastream.models import Biclique, Matrix, Split
from thetastream.models.base import Model
from thetastream.runtime.control import change
from thetastream.runtime.control.change import ControlOffset, apply_requests, change_plan
from thetastream.runtime.control.notices import ENDS, HANDS_OVER, JOINS, LEAVES, STAYS, Member, list_notices
from thetastream.runtime.control.plan import ControlPlan, Rules, decode_plan, encode_plan
from thetastream.runtime.control.request import Request
from thetastream.runtime.routing_step import PlanRouter

LEFT = Rules(12, ("hash",), preserved=(0,))
START = ControlOffset(ControlPlan.begin(Matrix(2, 1)))


def ask(offset: ControlOffset, model: Model, *marks: tuple[int, int]) -> ControlOffset:
    name = f"{len(offset.outcomes):03}"
    return apply_requests(offset, {name: Request(model=model).write()}, marks, LEFT)


def list_events(before: ControlOffset, after: ControlOffset) -> dict[int, str]:
    return {slot: notice.event for slot, notice in list_notices(before.plan, after.plan).items()}


def test_a_generation_comes_takes_over_and_the_one_before_ends() -> None:
    coming = ask(START, Matrix(3, 1))
    assert [one.slots for one in coming.plan.membership] == [(0, 1)]
    assert coming.plan.coming is not None
    assert coming.plan.coming.slots == (2, 3, 4)
    assert list_events(START, coming) == {0: HANDS_OVER, 1: HANDS_OVER, 2: JOINS, 3: JOINS, 4: JOINS}
    # It takes over when all units of the generation before are ready.
    assert apply_requests(coming, {}, {(0, 1)}, LEFT) is coming
    taken = apply_requests(coming, {}, {(0, 1), (1, 1)}, LEFT)
    assert [one.slots for one in taken.plan.membership] == [(0, 1), (2, 3, 4)]
    assert taken.plan.coming is None
    assert list_events(coming, taken) == {0: LEAVES, 1: LEAVES}
    # The marks of the handover do not end the generation before.
    assert apply_requests(taken, {}, {(0, 1), (1, 1)}, LEFT) is taken
    ended = apply_requests(taken, {}, set(taken.plan.leaving.items()), LEFT)
    assert [one.slots for one in ended.plan.membership] == [(2, 3, 4)]
    assert list_events(taken, ended) == {0: ENDS, 1: ENDS}
    assert decode_plan(encode_plan(coming.plan)) == coming.plan


def test_a_request_takes_the_place_of_the_one_before() -> None:
    coming = ask(START, Matrix(3, 1))
    # Slots that still get copies are not used again at once.
    other = ask(coming, Matrix(1, 1))
    assert other.plan.coming is not None
    assert other.plan.coming.slots == (5,)
    events = list_events(coming, other)
    assert events == {0: HANDS_OVER, 1: HANDS_OVER, **dict.fromkeys((2, 3, 4), ENDS), 5: JOINS}
    # The model that holds already is no change.
    assert ask(other, Matrix(1, 1)).plan is other.plan
    back = ask(other, Matrix(2, 1))
    assert back.plan.coming is None
    assert list_events(other, back) == {0: STAYS, 1: STAYS, 5: ENDS}


def test_a_generation_that_takes_over_may_hand_over_at_once() -> None:
    coming = ask(START, Matrix(3, 1))
    both = ask(coming, Matrix(1, 1), (0, 1), (1, 1))
    assert [one.slots for one in both.plan.membership] == [(0, 1), (2, 3, 4)]
    assert list_events(coming, both) == {
        **dict.fromkeys((0, 1), LEAVES),
        **dict.fromkeys((2, 3, 4), HANDS_OVER),
        5: JOINS,
    }


@pytest.mark.parametrize("model", [Biclique((1, 1)), Matrix(1, 2), Split(1), Split(2)], ids=repr)
def test_models_that_do_not_show_all_partners_are_refused(model: Model) -> None:
    with pytest.raises(QueryError, match=r"\[CANNOT_SCALE\].*use th.Matrix\(n, 1\)"):
        change_plan(START.plan, Request(model=model), LEFT)


def test_a_unit_hands_over_when_what_it_held_can_be_no_partner() -> None:
    notice = list_notices(START.plan, ask(START, Matrix(3, 1)).plan)[0]
    member = Member().hear(notice, 4).remember(4, count_until(100)).remember(5, count_until(300))
    assert member.find_drained(4, None, False) is None
    assert member.find_drained(6, 99, False) is None
    assert member.find_drained(6, 100, False) == 1
    # A unit that held no partner need not wait.
    assert Member().hear(notice, 4).remember(4, Counters()).find_drained(4, None, False) == 1


def count_until(partners_until_us: int) -> Counters:
    counters = Counters()
    counters.partners_until_us = partners_until_us
    return counters


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "has_residual"), [*((kind, False) for kind in KINDS), ("full", True), ("semi", True)]
)
def test_random_schedules_with_crashes_find_the_answers_of_one_unit(kind: str, has_residual: bool) -> None:
    n_taken = 0
    for seed in range(2):
        found = AnswersSchedule(seed, kind, has_residual=has_residual, ends=seed == 1).run()
        assert found.epochs == found.expected, seed
        assert found.is_right, seed
        n_taken += found.n_taken
    assert n_taken >= 2


@pytest.mark.slow
@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_schedules_with_crashes(kind: str, has_residual: bool) -> None:
    for seed in range(1000, 1040):
        assert AnswersSchedule(seed, kind, 30, has_residual, ends=seed % 2 == 1).run().is_right, seed


@pytest.mark.parametrize("seed", [1002, 1003])
def test_tuples_that_are_decided_before_the_watermark_reaches_them_are_answered_once(seed: int) -> None:
    """All partners are earlier by a gap. Seed 1002 found tuples that were answered again in later epochs."""
    assert AnswersSchedule(seed, "nearest or alone", 30, ends=seed % 2 == 1).run().is_right


# Variants that the search must find


def take_over_at_once(patch: pytest.MonkeyPatch) -> None:
    """The coming generation takes over without waiting for marks."""
    take_over = change.take_over

    def ignore_marks(plan: ControlPlan, drained: Any, arrived: Any) -> ControlPlan:
        marks = () if plan.coming is None else [(slot, plan.coming.since) for slot in plan.newest.slots]
        return take_over(plan, marks, arrived)

    patch.setattr(change, "take_over", ignore_marks)


def send_no_copies(patch: pytest.MonkeyPatch) -> None:
    """The coming generation gets no copies."""
    _change_router(patch, coming=None)


def probe_all_generations(patch: pytest.MonkeyPatch) -> None:
    """Tuples that are answered by the newest generation look for partners in older ones too."""
    _change_router(patch, partner_streams=(0, 1))


def probe_only_the_newest(patch: pytest.MonkeyPatch) -> None:
    """Partners do not probe older generations."""
    route = PlanRouter.route

    def route_newest(self: PlanRouter, *given: Any) -> Any:
        return route(replace(self, generations=self.generations[:1]), *given)

    patch.setattr(PlanRouter, "route", route_newest)


def return_pairs_of_copies(patch: pytest.MonkeyPatch) -> None:
    """Both the older and the newer generation return a pair of a copy."""
    patch.setattr(unit, "_leave_out_copies", lambda matches: matches)


def answer_guests(patch: pytest.MonkeyPatch) -> None:
    """A unit answers also tuples that another unit answers."""
    admit = unit.AnsweringUnit._admit

    def admit_own(self: Any, inbox: Any, side: Side, role: Role, late_us: int | None) -> Any:
        batch = admit(self, inbox, side, role, late_us)
        if batch is None or side not in self._open or role is Role.BOTH:
            return batch
        return self._number(side, batch.drop_columns([TUPLE]))

    patch.setattr(unit.AnsweringUnit, "_admit", admit_own)


def forget_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """A unit hands over without waiting for the tuples that it holds."""
    patch.setattr(Member, "remember", lambda self, epoch, counters: self)


def send_by_number(patch: pytest.MonkeyPatch) -> None:
    """Second units know the number of a first unit in its generation, and not its slot."""
    epoch = CandidatesUnit.epoch
    patch.setattr(
        CandidatesUnit,
        "epoch",
        lambda self, inbox, clock: epoch(self, replace(inbox, peers=ALONE), clock),
    )


def return_candidates_of_copies(patch: pytest.MonkeyPatch) -> None:
    """Second units return a pair of a copy for both generations."""
    patch.setattr(DecidingUnit, "_leave_out_copies", lambda self, pairs: pairs)


def _change_router(patch: pytest.MonkeyPatch, **changes: Any) -> None:
    route = PlanRouter.route
    patch.setattr(PlanRouter, "route", lambda self, *given: route(replace(self, **changes), *given))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("break_", "kind"),
    [
        (return_candidates_of_copies, "full"),
        (send_by_number, "left"),
        (take_over_at_once, "left"),
        (forget_what_is_held, "anti"),
        (send_no_copies, "right"),
        (probe_all_generations, "left"),
        (probe_only_the_newest, "semi"),
        (probe_only_the_newest, "nearest"),
        (return_pairs_of_copies, "full"),
        (answer_guests, "full"),
    ],
)
def test_the_search_finds_broken_variants(
    monkeypatch: pytest.MonkeyPatch, break_: Callable[[pytest.MonkeyPatch], None], kind: str
) -> None:
    break_(monkeypatch)
    has_residual = break_ in (send_by_number, return_candidates_of_copies)
    runs = (AnswersSchedule(seed, kind, has_residual=has_residual).run() for seed in range(12))
    assert any(not found.is_right for found in runs)
