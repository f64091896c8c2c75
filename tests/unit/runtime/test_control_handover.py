"""The handover of a left join, explored: every order of tasks, crashes, and requests.

The world is that of the protocol's search. Left tuples probe only where they are stored, so a pair that is
not found there is missing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.controlled import UNIT
from tests.unit.runtime.test_control_protocol import Protocol, World, explore
from thetastream.core.columns import HASH
from thetastream.core.how import HOWS
from thetastream.core.sides import Role, Side
from thetastream.engine.answers.spec import AnswersSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Matrix
from thetastream.models.base import Model
from thetastream.runtime.control.change import ControlOffset, apply_requests
from thetastream.runtime.control.plan import ControlPlan, Rules
from thetastream.runtime.control.request import Request
from thetastream.runtime.routing_step import build_router

RULES = Rules(8, preserved=(0,))
START, OTHER = Matrix(1, 1), Matrix(2, 1)
SPEC = AnswersSpec(TwoStreamSpec(UNIT, START), HOWS["left"])
EPOCHS = 11
"""A handover takes six epochs here, and old units end two epochs later."""


def begin() -> World:
    plan = ControlPlan.begin(START)
    return World(offset=ControlOffset(plan), entries={0: plan})


def ask(epoch: int) -> Any:
    """Ask for a change in the first epoch, and then for another one or for none."""
    return {0: ((OTHER,),), 2: ((), (START,)), 5: ((), (START,)), 6: ((), (START,))}.get(epoch, ((),))


class Handover(Protocol):
    """The protocol of a left join."""

    def apply_requests(self, world: World, models: tuple[Model, ...]) -> ControlOffset:
        requests = {f"{world.epoch}-{n}": Request(model=model).write() for n, model in enumerate(models)}
        return apply_requests(world.offset, requests, world.marks, RULES)

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        batch = pa.record_batch({"id": [number], HASH: pa.array([number % 2], pa.int64())})
        return tuple((slot, role) for slot, role, _ in build_router(SPEC, plan).route(side, batch))


def test_a_handover_is_right_in_every_order_and_after_every_crash() -> None:
    assert list(explore(Handover(), EPOCHS, ask, begin)) == []


class WithoutMarks(Handover):
    """The coming generation takes over without marks."""

    def apply_requests(self, world: World, models: tuple[Model, ...]) -> ControlOffset:
        plan = world.offset.plan
        waiting = () if plan.coming is None else plan.newest.slots
        marks = world.marks | {(slot, plan.target.since) for slot in waiting}
        return super().apply_requests(replace(world, marks=marks), models)


class WithoutCopies(Handover):
    """The coming generation gets no copies."""

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        return super().route(replace(plan, coming=None), side, number)


class WithoutOlderUnits(Handover):
    """Partners do not probe older generations."""

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        return super().route(replace(plan, membership=plan.membership[-1:]), side, number)


@pytest.mark.parametrize("variant", [WithoutMarks, WithoutCopies, WithoutOlderUnits])
def test_the_search_finds_what_is_wrong_in_broken_variants(variant: Callable[[], Protocol]) -> None:
    assert next(explore(variant(), EPOCHS, ask, begin), None) is not None
