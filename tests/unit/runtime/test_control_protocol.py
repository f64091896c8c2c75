"""The protocol of the control plane, explored: every order of tasks, crashes, and every request.

A world has one tuple of each stream in each epoch, with the number of the epoch as its event time. Two tuples
join if their epochs differ by at most two, and the watermark is one epoch behind. In an epoch, three tasks
run in any order: the control source publishes the plan, and a router of each stream reads the plan and routes
its tuple. Then the units run. A crash sets the units back and keeps the files. After each epoch, the pairs
found must be those of the window, each once.

Broken variants of the protocol show that the search finds what it looks for.
"""

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from tests.support.controlled import UNIT
from thetastream.core.columns import HASH
from thetastream.core.sides import Role, Side
from thetastream.engine.counters import Counters
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Model
from thetastream.runtime.control.change import ControlOffset, apply_requests
from thetastream.runtime.control.notices import ENDS, JOINS, Member, list_notices
from thetastream.runtime.control.plan import ControlPlan, Rules
from thetastream.runtime.control.request import Request
from thetastream.runtime.routing_step import build_router

RULES = Rules(8)
REACH = 2
"""Two tuples join if their event times differ by at most this."""
START, GROWN, OTHER = Biclique((1, 1)), Biclique((2, 1)), Matrix(1, 2)
REQUESTS: tuple[tuple[Model, ...], ...] = ((), (START,), (GROWN,), (OTHER,), (GROWN, OTHER), (OTHER, START))
"""The requests that an epoch may find."""
PUBLISH = "publish"
ORDERS: tuple[tuple[Any, ...], ...] = (
    (PUBLISH, Side.LEFT, Side.RIGHT),
    (Side.LEFT, PUBLISH, Side.RIGHT),
    (Side.RIGHT, PUBLISH, Side.LEFT),
    (Side.LEFT, Side.RIGHT, PUBLISH),
)
"""The orders of the tasks of an epoch. Routers change nothing, so the order of two routers alone does not
matter.
"""
AFTER_PUBLISHING, BEFORE_COMMIT = 1, 3
_PLANS: dict[str, ControlPlan] = {}


@cache
def route(plan: str, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
    """Route one tuple with a plan: the slots that get it, and what they do with it."""
    router = build_router(TwoStreamSpec(UNIT, START), _PLANS[plan])
    batch = pa.record_batch({"id": [number], HASH: pa.array([number], pa.int64())})
    return tuple((slot, role) for slot, role, _ in router.route(side, batch))


@dataclass
class World:
    """All that the protocol keeps: logs, files and units."""

    epoch: int = 0
    offset: ControlOffset = field(default_factory=lambda: ControlOffset(ControlPlan.begin(START)))
    # Files, which survive a crash.
    entries: dict[int, ControlPlan] = field(default_factory=lambda: {0: ControlPlan.begin(START)})
    marks: set[tuple[int, int]] = field(default_factory=set)
    # The state of units: slot -> tuples (side, event time), and what a unit remembers of its notices.
    stored: dict[int, set[tuple[Side, int]]] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The state, with epochs and versions counted from the present ones, for equality of states."""
        now, version = self.epoch, self.offset.plan.version

        def describe(plan: ControlPlan) -> list[Any]:
            units = [(one.since - version, repr(one.model), one.slots) for one in plan.membership]
            leaving = sorted((slot, since - version) for slot, since in plan.leaving.items())
            coming = plan.coming and (plan.coming.since - version, repr(plan.coming.model), plan.coming.slots)
            return [plan.version - version, units, leaving, coming]

        entries = [(max(epoch - now, 0), describe(plan)) for epoch, plan in sorted(self.entries.items())]
        stored = [
            (slot, sorted((side, time - now) for side, time in tuples))
            for slot, tuples in sorted(self.stored.items())
            if tuples
        ]
        members = [
            (
                slot,
                None if member.leaves is None else member.leaves - version,
                max(member.told - now, -2),
                None if member.hands_over is None else member.hands_over - version,
                None if member.until_us is None else max(member.until_us - now, -2),
            )
            for slot, member in sorted(self.members.items())
        ]
        marks = sorted((slot, since - version) for slot, since in self.marks)
        # Tuples are routed by the parity of their number.
        return repr((now % 2, describe(self.offset.plan), entries[-2:], stored, members, marks))


class Protocol:
    """The protocol as it is. Variants override one step of it."""

    def apply_requests(self, world: World, models: tuple[Model, ...]) -> ControlOffset:
        requests = {f"{world.epoch}-{n}": Request(model=model).write() for n, model in enumerate(models)}
        return apply_requests(world.offset, requests, world.marks, RULES)

    def publish(self, world: World, after: ControlPlan) -> None:
        if after.version != world.offset.plan.version:
            world.entries[world.epoch + 1] = after

    def find_plan(self, world: World) -> ControlPlan:
        return world.entries[max(epoch for epoch in world.entries if epoch <= world.epoch)]

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        name = repr([(one.model, one.slots) for one in plan.membership])
        _PLANS[name] = plan
        return route(name, side, number % 2)

    def keeps(self, keeps: bool) -> bool:
        return keeps

    def run(
        self, world: World, after: ControlOffset, order: tuple[Any, ...], crash: int | None
    ) -> World | None:
        """Run an attempt of an epoch; return the world after its commit, or None after a crash.

        The files of ``world`` change even if the attempt crashes.
        """
        routes: dict[Side, tuple[tuple[int, Role], ...]] = {}
        for step, task in enumerate(order):
            if step == crash:
                return None
            if isinstance(task, Side):
                routes[task] = self.route(self.find_plan(world), task, world.epoch)
            else:
                self.publish(world, after.plan)
        units = replace(
            world, stored=deepcopy(world.stored), members=dict(world.members), pairs=list(world.pairs)
        )
        self.run_units(units, after.plan, routes)
        if crash == BEFORE_COMMIT:
            return None
        return replace(units, epoch=world.epoch + 1, offset=after)

    def mark(self, world: World, slot: int) -> None:
        """Mark the unit of a slot if it has drained at the end of the epoch."""
        counters = Counters()
        right = [time for side, time in world.stored[slot] if side is Side.RIGHT]
        counters.partners_until_us = max(right) + REACH if right else None
        member = world.members.get(slot, Member()).remember(world.epoch, counters)
        if slot in world.members:
            world.members[slot] = member
        drained = member.find_drained(world.epoch, world.epoch - 1, not world.stored[slot])
        if drained is not None:
            world.marks.add((slot, drained))

    def run_units(
        self, world: World, after: ControlPlan, routes: dict[Side, tuple[tuple[int, Role], ...]]
    ) -> None:
        notices = list_notices(world.offset.plan, after)
        for slot, notice in notices.items():
            if notice.event == JOINS and not self.keeps(notice.keeps):
                world.stored[slot] = set()
            if notice.event != ENDS:
                world.members[slot] = world.members.get(slot, Member()).hear(notice, world.epoch)
        for side in Side:
            for slot, role in routes[side]:
                mine = world.stored.setdefault(slot, set())
                if role is not Role.STORE:
                    found = [
                        other
                        for kind, other in mine
                        if kind is side.other and abs(other - world.epoch) <= REACH
                    ]
                    pairs = [
                        (world.epoch, other) if side is Side.LEFT else (other, world.epoch) for other in found
                    ]
                    world.pairs += pairs
                if role is not Role.PROBE:
                    mine.add((side, world.epoch))
        for slot, tuples in world.stored.items():
            world.stored[slot] = {(side, time) for side, time in tuples if time + REACH > world.epoch - 1}
            self.mark(world, slot)
        for slot, notice in notices.items():
            if notice.event == ENDS:
                world.stored.pop(slot, None)
                world.members.pop(slot, None)


def explore(
    protocol: Protocol,
    epochs: int,
    requests: Callable[[int], Any] = lambda epoch: REQUESTS,
    begin: Callable[[], World] = World,
) -> Iterator[str]:
    """Yield what goes wrong in any run of the protocol; nothing if it is right. Equal states run on once."""
    frontier = [begin()]
    for _ in range(epochs):
        reached: dict[str, World] = {}
        for world in frontier:
            for models in requests(world.epoch):
                after = protocol.apply_requests(world, models)
                crashes = (None, AFTER_PUBLISHING, BEFORE_COMMIT)
                for order, crash in itertools.product(ORDERS, crashes):
                    files = replace(world, entries=dict(world.entries), marks=set(world.marks))
                    if crash is not None:
                        protocol.run(files, after, ORDERS[0], crash)
                    done = protocol.run(files, after, order, None)
                    assert done is not None
                    wrong = find_wrong(done)
                    if wrong:
                        yield wrong
                        continue
                    done.pairs = [pair for pair in done.pairs if max(pair) >= done.epoch - 1]
                    reached.setdefault(done.key, done)
        frontier = list(reached.values())


def find_wrong(world: World) -> str:
    """Compare the pairs of the last epoch with the window."""
    last = world.epoch - 1
    found = sorted(pair for pair in world.pairs if max(pair) == last)
    wanted = sorted(
        (a, b)
        for a in range(world.epoch)
        for b in range(world.epoch)
        if abs(a - b) <= REACH and max(a, b) == last
    )
    return "" if found == wanted else f"epoch {last} found {found} and not {wanted}"


def test_the_protocol_is_right_in_every_order_and_after_every_crash() -> None:
    assert list(explore(Protocol(), 4)) == []


@pytest.mark.slow
def test_the_protocol_is_right_in_longer_runs() -> None:
    assert list(explore(Protocol(), 7)) == []


class AtOnce(Protocol):
    """The plan holds from the epoch that publishes it."""

    def publish(self, world: World, after: ControlPlan) -> None:
        if after.version != world.offset.plan.version:
            world.entries[world.epoch] = after


class NewestPlan(Protocol):
    """Routers follow the newest plan, whatever their epoch."""

    def find_plan(self, world: World) -> ControlPlan:
        return world.entries[max(world.entries)]


class NewestGeneration(Protocol):
    """Tuples probe the newest generation only."""

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        return super().route(replace(plan, membership=plan.membership[-1:]), side, number)


class StoredByAll(Protocol):
    """All generations store new tuples."""

    def route(self, plan: ControlPlan, side: Side, number: int) -> tuple[tuple[int, Role], ...]:
        found: list[tuple[int, Role]] = []
        for one in plan.membership:
            found += super().route(replace(plan, membership=(one,)), side, number)
        return tuple(found)


class EndedAtOnce(Protocol):
    """A generation ends without waiting for its units."""

    def apply_requests(self, world: World, models: tuple[Model, ...]) -> ControlOffset:
        after = super().apply_requests(world, models)
        return replace(after, plan=replace(after.plan, membership=after.plan.membership[-1:], leaving={}))


class AnyMark(Protocol):
    """A mark ends a unit also if it has joined and left again since."""

    def apply_requests(self, world: World, models: tuple[Model, ...]) -> ControlOffset:
        leaving = world.offset.plan.leaving
        marks = {(slot, leaving.get(slot, version)) for slot, version in world.marks}
        return super().apply_requests(replace(world, marks=marks), models)


class Forgetful(Protocol):
    """A unit that comes back forgets what it has stored."""

    def keeps(self, keeps: bool) -> bool:
        return False


VARIANTS: tuple[Callable[[], Protocol], ...] = (
    AtOnce,
    NewestPlan,
    NewestGeneration,
    StoredByAll,
    EndedAtOnce,
    Forgetful,
)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_search_finds_what_is_wrong_in_broken_variants(variant: Callable[[], Protocol]) -> None:
    assert next(explore(variant(), 3), None) is not None


def test_the_search_finds_marks_of_an_older_version() -> None:
    """A unit leaves, ends, joins again, and leaves again. Its first mark must not count again."""
    changes = {0: (OTHER,), 7: (START,), 9: (OTHER,)}

    def ask(epoch: int) -> Any:
        return (changes.get(epoch, ()),)

    assert list(explore(Protocol(), 14, ask)) == []
    assert next(explore(AnyMark(), 14, ask), None) is not None
