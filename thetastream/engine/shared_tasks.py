"""The engine of several join tasks: a unit receives each tuple once and keeps a separate state for each task.

For each task: { tuples of the inbox that are not late and pass its filters } -> its own ``Unit``.

Late tuples are dropped before any task sees them, so they are counted once. The ``Unit`` of a task stores the
tuples that pass the filters of the task. It has its own index and archive period, because tasks have
different windows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from thetastream.core.sides import Role, Side
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.lateness import drop_late
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.unit import Unit
from thetastream.models.base import Model

SHARED_COUNTERS = ("left", "right", "late", "received", "received_bytes", "emitted_bytes")
"""The counters that a unit fills once for all tasks. The other counters are sums over tasks."""
TASK_COUNTERS = tuple(
    each.name for each in fields(Counters) if each.type is int and each.name not in SHARED_COUNTERS
)
"""The counters that each task has for itself."""


@dataclass(frozen=True)
class TaskSpec:
    """The fixed properties of one task. Picklable."""

    name: str
    unit: UnitSpec
    passes: tuple[str | None, str | None] = (None, None)
    """Boolean columns of left and of right blocks that are true for the tuples that pass the filters of this
    task. None means that all tuples pass."""

    def select_passing(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the tuples that pass the filters of this task, with the columns that it needs."""
        spec, passes = self.unit.condition.sides[side], self.passes[side]
        mine = batch.select([*spec.columns, *spec.computed])
        if passes is None:
            return mine
        mask = batch.column(passes)
        return mine if mask.true_count == len(mask) else mine.filter(mask)


@dataclass
class TasksState:
    """The state that a unit of several tasks keeps from epoch to epoch."""

    tasks: dict[str, UnitState] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Convert the state to plain values for the manifest."""
        return {"tasks": {name: state.as_json() for name, state in self.tasks.items()}}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TasksState":
        """Build a state from the values that ``as_json`` returned."""
        return cls({name: UnitState.from_json(state) for name, state in values["tasks"].items()})


@dataclass
class TasksCounters(Counters):
    """The work that a unit did in one epoch, in total and for each task."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    """The counters of each task, by the name of the task."""


class TasksUnit:
    """One unit of a model that runs several tasks.

    Parameters
    ----------
    specs : sequence of TaskSpec
        The tasks, which join the same streams.
    model : Model
        The model. It must not route by values that only one task compares.
    slot : int
        The number of this unit.
    state : TasksState
        The state before this epoch, from the manifest.
    open_store : callable
        Opens a store for the segments of a task.
    """

    messages: Sequence[Message] = ()
    is_waiting = False

    def __init__(
        self,
        specs: Sequence[TaskSpec],
        model: Model,
        slot: int,
        state: TasksState,
        open_store: OpenStore,
    ) -> None:
        self._specs = specs
        self._homes = [model.is_home(slot, side) for side in Side]
        self._units = {
            spec.name: Unit(
                spec.unit, model, slot, state.tasks.get(spec.name) or UnitState(), open_store(spec.unit.plans)
            )
            for spec in specs
        }
        self.counters = TasksCounters()
        sides = specs[0].unit.condition.sides
        self.counters.list_streams(sides[side].alias for side in Side if self._homes[side])

    @property
    def state(self) -> TasksState:
        """The current state."""
        return TasksState({name: unit.state for name, unit in self._units.items()})

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch, task by task.

        Yield the number of the task, followed by the columns of the left and of the right tuples of its
        matches.
        """
        # 1. Drop late tuples.
        blocks = {(side, role): self._drop_late(inbox, side, role, clock) for side in Side for role in Role}
        # 2. Join.
        for number, spec in enumerate(self._specs):
            mine = Inbox()
            for (side, role), batch in blocks.items():
                if batch is not None:
                    mine.add(side, role, 0, spec.select_passing(side, batch), 0)
            for matches in self._units[spec.name].matches(mine, clock):
                yield [pa.array(np.full(matches.left.num_rows, number, np.int32)), *matches.columns]
        # 3. Count.
        self.counters.received, self.counters.received_bytes = inbox.received, inbox.received_bytes
        for name, unit in self._units.items():
            done = {counter: getattr(unit.counters, counter) for counter in TASK_COUNTERS}
            self.counters.tasks[name] = done
            for counter, n in done.items():
                setattr(self.counters, counter, getattr(self.counters, counter) + n)

    def _drop_late(self, inbox: Inbox, side: Side, role: Role, clock: Clock) -> pa.RecordBatch | None:
        batch = inbox.batch(side, role)
        if batch is None:
            return None
        is_counted = role.is_counted and self._homes[side]
        spec = self._specs[0].unit.condition.sides[side]
        batch = drop_late(batch, side, spec, clock.late_us, self.counters if is_counted else None)
        return batch if batch.num_rows else None


@dataclass(frozen=True)
class SharedTasksSpec:
    """Several joins of the same two streams that share one exchange."""

    tasks: tuple[TaskSpec, ...]
    model: Model

    state_type: ClassVar[type[TasksState]] = TasksState
    has_messages: ClassVar[bool] = False
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = None

    @property
    def n_units(self) -> int:
        """The number of units of the model."""
        return self.model.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return self.tasks[0].unit.has_event_time

    @property
    def router(self) -> Router:
        """The router of the model that all tasks share."""
        return Router(self.model)

    def with_model(self, model: Model) -> "SharedTasksSpec":
        """Return the same tasks under another model."""
        return replace(self, model=model)

    def open(self, slot: int, state: TasksState, open_store: OpenStore) -> TasksUnit:
        """Open the unit ``slot``."""
        return TasksUnit(self.tasks, self.model, slot, state, open_store)
