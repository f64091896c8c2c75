"""One unit of several join tasks: their tuples come once, each task has a state of its own.

For each task: { tuples of the inbox that are not late and pass its filters } -> its own ``Unit``.

Tuples are judged late before any task sees them, and so counted once. A task's unit stores what passes
its filters, in segments of its own index and archive period: tasks keep different windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from thetastream.joiner.clock import Clock
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.segment import SegmentStore
from thetastream.joiner.unit import COUNTS, Counters, Matches, Unit, UnitSpec, UnitState, admitted
from thetastream.models.base import Model
from thetastream.types import Role, Side

OF_ALL = ("left", "right", "late", "received", "received_bytes", "emitted_bytes")
"""Counters that tasks share: the others are sums over tasks."""


@dataclass(frozen=True)
class TaskSpec:
    """All that a unit needs to know of one task; picklable."""

    name: str
    unit: UnitSpec
    passes: tuple[str | None, str | None] = (None, None)
    """Columns of left and right blocks that are true for tuples of this task; None: all are."""

    def passing(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The tuples that pass, with the columns this task needs."""
        spec, passes = self.unit.condition.sides[side], self.passes[side]
        mine = batch.select([*spec.columns, *spec.computed])
        if passes is None:
            return mine
        mask = batch.column(passes)
        return mine if mask.true_count == len(mask) else mine.filter(mask)


@dataclass
class TasksState:
    """What a unit of several tasks remembers from epoch to epoch."""

    tasks: dict[str, UnitState] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the manifest."""
        return {"tasks": {name: state.as_json() for name, state in self.tasks.items()}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TasksState":
        """Inverse of ``as_json``."""
        return cls({name: UnitState.from_json(state) for name, state in values["tasks"].items()})


@dataclass
class TasksCounters(Counters):
    """What a unit did in one epoch, and which task how much of it."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)


class TasksUnit:
    """A slot of a model that runs several tasks.

    Parameters
    ----------
    specs : sequence of TaskSpec
        The tasks, over the same streams.
    model : Model
        What this unit is a slot of; it routes by nothing that one task alone compares.
    slot : int
        Which.
    state : TasksState
        From the manifest: the state before this epoch.
    stores : mapping of str to SegmentStore
        Where each task's runs live.
    """

    def __init__(
        self,
        specs: Sequence[TaskSpec],
        model: Model,
        slot: int,
        state: TasksState,
        stores: Mapping[str, SegmentStore],
    ) -> None:
        self._specs = specs
        self._homes = [model.is_home(slot, side) for side in Side]
        self._units = {
            spec.name: Unit(
                spec.unit, model, slot, state.tasks.get(spec.name) or UnitState(), stores[spec.name]
            )
            for spec in specs
        }
        self.counters = TasksCounters()

    @property
    def state(self) -> TasksState:
        """State after what has been done so far."""
        return TasksState({name: unit.state for name, unit in self._units.items()})

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[tuple[int, Matches]]:
        """Run one epoch, task by task: matches with their task's number; parameters as for ``Unit.epoch``."""
        # 1. Admit what is not late.
        times = [side.time for side in self._specs[0].unit.condition.sides]
        blocks = {
            (side, role): admitted(
                inbox, side, role, times[side], clock.late_us, self.counters, self._homes[side]
            )
            for side in Side
            for role in Role
        }
        # 2. Join.
        for number, spec in enumerate(self._specs):
            mine = Inbox()
            for (side, role), batch in blocks.items():
                if batch is not None:
                    mine.add(side, role, 0, spec.passing(side, batch), 0)
            for matches in self._units[spec.name].epoch(mine, clock):
                yield number, matches
        # 3. Count.
        self.counters.received, self.counters.received_bytes = inbox.received, inbox.received_bytes
        for name, unit in self._units.items():
            done = {counter: getattr(unit.counters, counter) for counter in COUNTS if counter not in OF_ALL}
            self.counters.tasks[name] = done
            for counter, n in done.items():
                setattr(self.counters, counter, getattr(self.counters, counter) + n)
