"""Join tasks over the same two streams as one plan: what they share travels once.

    sent(s) = { (t, keys of all tasks, who lets t pass) : t in s, some task's filters let t pass }

A key that several tasks ask for is one column, a key that is a payload column is none. What is computed for a
task is guarded by the filters that only this task has: before its own join it would not have been looked at.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from thetastream.condition import SideSpec
from thetastream.plan.lower import guarded
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.types import Side

TASK = "task"
"""The user's column, text; what leaves the units is the task's number."""
Filters = tuple[str, ...]
_HARMLESS = re.compile(r"\([\w`.]+\) IS NOT NULL")
"""A column is there."""


@dataclass(frozen=True)
class Task:
    """One task behind the shared exchange."""

    name: str
    plan: PhysicalPlan
    """Of its own join, but for the names of key columns, which are those of the shared blocks."""
    passes: tuple[str | None, str | None]
    """Block columns that are true for the tuples its filters let pass; None: for all that were sent."""


@dataclass(frozen=True)
class TasksPlan:
    """What both streams send, and what each task makes of it."""

    sides: tuple[SidePlan, SidePlan]
    tasks: tuple[Task, ...]

    @property
    def names(self) -> list[str]:
        return [task.name for task in self.tasks]


class _Merged(NamedTuple):
    """One stream of all tasks."""

    side: SidePlan
    passes: list[str | None]
    """Per task."""


def share(plans: Mapping[str, PhysicalPlan]) -> TasksPlan:
    """The plans of joins over the same two streams as tasks of one."""
    left, right = (_merge([plan.sides[side] for plan in plans.values()]) for side in Side)
    tasks = [
        Task(name, _renamed(plan), passes)
        for (name, plan), passes in zip(
            plans.items(), zip(left.passes, right.passes, strict=True), strict=True
        )
    ]
    return TasksPlan((left.side, right.side), tuple(tasks))


def _merge(sides: Sequence[SidePlan]) -> _Merged:
    # 1. Filters that all tasks have; of the others one must let a tuple pass, if each task has some.
    shared = _shared([side.filters for side in sides])
    own = [tuple(text for text in side.filters if text not in shared) for side in sides]
    filters = [*shared, *([_any(own)] if all(own) else [])]
    # 2. Keys, computed for tuples that pass a task which asks for them.
    asked: dict[str, list[Filters]] = {}
    for side, guard in zip(sides, own, strict=True):
        for _, text in side.computed:
            asked.setdefault(text, []).append(guard)
    computed = [(key_column(text), _guarded_key(text, guards)) for text, guards in asked.items()]
    # 3. Who passes what.
    columns = {guard: f"p{number}" for number, guard in enumerate(dict.fromkeys(filter(None, own)))}
    computed += [(column, _any([guard])) for guard, column in columns.items()]
    merged = replace(sides[0], filters=tuple(filters), computed=tuple(computed))
    return _Merged(merged, [columns.get(guard) for guard in own])


def _shared(filters: Sequence[Filters]) -> list[str]:
    """Filters that may go before all tasks: those that all begin with, and others that cannot raise.

    >>> _shared([("x <> 0", "1 / x > y", "(a.y) IS NOT NULL"), ("x > 0", "1 / x > y", "(a.y) IS NOT NULL")])
    ['(a.y) IS NOT NULL']
    """
    first, *others = filters
    common = [text for text in first if all(text in other for other in others)]
    n = 0
    while n < len(first) and all(other[: n + 1] == first[: n + 1] for other in others):
        n += 1
    return [*first[:n], *(text for text in common if text not in first[:n] and _HARMLESS.fullmatch(text))]


def key_column(text: str) -> str:
    """A name that the expression alone decides: stored columns keep theirs, whatever tasks are beside."""
    return f"k_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _any(guards: Sequence[Filters]) -> str:
    """Whether all filters of one guard are true, of whichever.

    >>> _any([("x > 0", "y > 0")])
    'coalesce(CASE WHEN x > 0 THEN CASE WHEN y > 0 THEN true END END, false)'
    """
    return f"coalesce({', '.join(guarded(guard, 'true') for guard in dict.fromkeys(guards))}, false)"


def _guarded_key(text: str, guards: Sequence[Filters]) -> str:
    """The key where one of the guards lets a tuple pass.

    >>> _guarded_key("1 / x", [("x > 0",), ("x < 0",)])
    'coalesce(CASE WHEN x > 0 THEN 1 / x END, CASE WHEN x < 0 THEN 1 / x END)'
    >>> _guarded_key("1 / x", [("x > 0",), ()])
    '1 / x'
    """
    if not all(guards):
        return text
    cases = [guarded(guard, text) for guard in dict.fromkeys(guards)]
    return cases[0] if len(cases) == 1 else f"coalesce({', '.join(cases)})"


def _renamed(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan with the key columns of the shared blocks."""
    names = [{column: key_column(text) for column, text in side.computed} for side in plan.sides]
    sides = [
        replace(side, computed=tuple((key_column(text), text) for _, text in side.computed))
        for side in plan.sides
    ]
    specs = [_renamed_spec(spec, new) for spec, new in zip(plan.condition.sides, names, strict=True)]
    condition = replace(plan.condition, sides=(specs[0], specs[1]))
    return replace(plan, sides=(sides[0], sides[1]), condition=condition)


def _renamed_spec(spec: SideSpec, names: Mapping[str, str]) -> SideSpec:
    return replace(
        spec,
        computed=tuple(names[column] for column in spec.computed),
        keys=tuple(replace(key, column=names.get(key.column, key.column)) for key in spec.keys),
    )
