"""The engine of several join tasks: a unit receives each tuple once and keeps a separate state for each task.

For each task: { tuples of the inbox that are not late and pass its filters } -> its own engine.

Late tuples are dropped before any task sees them, so they are counted once. The engine of a task stores the
tuples that pass the filters of the task. It has its own index and archive period, because tasks have
different windows. On a handshake chain, a worker has an instance of the protocol for each task (ESJ,
architecture). The messages of an instance carry the name of its task.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import cancel
from thetastream.core.condition import Condition
from thetastream.core.records import decode, encode
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import drop_late
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters, SendingCounters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import Engine, EngineSpec, OpenStore
from thetastream.engine.routing import Router
from thetastream.models.base import Model

SHARED_COUNTERS = (
    "left",
    "right",
    "late",
    "received",
    "received_bytes",
    "emitted_bytes",
    "forwarded_bytes",
)
"""The counters that a unit fills once for all tasks. The other counters are sums over tasks."""


class TaskJoin(EngineSpec, Protocol):
    """A join of two streams that may be a task, because its results are pairs."""

    @property
    def condition(self) -> Condition:
        """The condition of the join."""

    @property
    def model(self) -> Model:
        """The model of the join."""

    def with_model(self, model: Any) -> "TaskJoin":
        """Return the same join under another model."""


@dataclass(frozen=True)
class TaskSpec:
    """The fixed properties of one task. Picklable."""

    name: str
    join: TaskJoin
    """The task as a join of its own. All tasks have the same model."""
    passes: tuple[str | None, str | None] = (None, None)
    """Boolean columns of left and of right blocks that are true for the tuples that pass the filters of this
    task. None means that all tuples pass."""

    def select_passing(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the tuples that pass the filters of this task, with the columns that it needs."""
        spec, passes = self.join.condition.sides[side], self.passes[side]
        mine = batch.select([*spec.columns, *spec.computed])
        if passes is None:
            return mine
        mask = batch.column(passes)
        return mine if mask.true_count == len(mask) else mine.filter(mask)


@dataclass
class TasksState:
    """The state that a unit of several tasks keeps from epoch to epoch."""

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The state of each task in plain values, by the name of the task."""


@dataclass
class TasksCounters(Counters):
    """The work that a unit did in one epoch, in total and for each task."""

    tasks: dict[str, dict[str, int]] = field(default_factory=dict)
    """The counters of each task, by the name of the task."""

    def add_task(self, name: str, done: Counters) -> None:
        """Add the counters that one task has for itself."""
        names = [each.name for each in fields(done) if each.type is int and each.name not in SHARED_COUNTERS]
        self.tasks[name] = {counter: getattr(done, counter) for counter in names}
        for counter, n in self.tasks[name].items():
            setattr(self, counter, getattr(self, counter) + n)
        self.expects_tuples = self.expects_tuples or done.expects_tuples


@dataclass
class SendingTasksCounters(TasksCounters, SendingCounters):
    """The work of a unit that sends messages for several tasks."""


class TasksUnit:
    """One unit of a model that runs several tasks.

    Parameters
    ----------
    specs : sequence of TaskSpec
        The tasks, which join the same streams under the same model. The model must not route by values that
        only one task compares.
    slot : int
        The number of this unit.
    state : TasksState
        The state before this epoch, from the manifest.
    open_store : callable
        Opens a store for the segments of a task.
    """

    def __init__(
        self, specs: Sequence[TaskSpec], slot: int, state: TasksState, open_store: OpenStore
    ) -> None:
        self._specs = specs
        first = specs[0].join
        self._homes = [first.model.counts(slot, side) for side in Side]
        self._engines: dict[str, Engine] = {
            spec.name: spec.join.open(slot, _read_state(spec, state), open_store) for spec in specs
        }
        self.counters = SendingTasksCounters() if first.has_messages else TasksCounters()
        sides = first.condition.sides
        self.counters.list_streams(sides[side].alias for side in Side if self._homes[side])

    @property
    def state(self) -> TasksState:
        """The current state."""
        return TasksState({name: encode(engine.state) for name, engine in self._engines.items()})

    @property
    def messages(self) -> list[Message]:
        """The messages of all tasks. Each carries the name of its task."""
        return [
            message._replace(header=json.dumps([name, message.header]))
            for name, engine in self._engines.items()
            for message in engine.messages
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether a task needs another epoch even if no new tuples arrive."""
        return any(engine.is_waiting for engine in self._engines.values())

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch, task by task.

        Yield the number of the task, followed by the columns of the left and of the right tuples of its
        matches.
        """
        # 1. Drop late tuples.
        blocks = {(side, role): self._drop_late(inbox, side, role, clock) for side in Side for role in Role}
        messages = _sort_by_task(inbox.messages)
        # 2. Join.
        for number, spec in enumerate(self._specs):
            mine = Inbox(peers=inbox.peers)
            for message in messages.get(spec.name, []):
                mine.deliver(message, 0)
            for (side, role), batch in blocks.items():
                if batch is not None:
                    mine.add(side, role, 0, spec.select_passing(side, batch), 0)
            for columns in self._engines[spec.name].epoch(mine, clock):
                yield [pa.array(np.full(len(columns[0]), number, np.int32)), *columns]
        # 3. Count.
        self.counters.received, self.counters.received_bytes = inbox.received, inbox.received_bytes
        for name, engine in self._engines.items():
            self.counters.add_task(name, engine.counters)

    def _drop_late(self, inbox: Inbox, side: Side, role: Role, clock: Clock) -> pa.RecordBatch | None:
        """Return the timely tuples of one side and role; None if no block came.

        A tuple that is inserted and deleted in the epoch is neither timely nor late. A block without tuples
        is kept, because it says that the stream goes on.
        """
        batch = inbox.batch(side, role)
        if batch is None:
            return None
        is_counted = role.is_counted and self._homes[side]
        spec = self._specs[0].join.condition.sides[side]
        batch = cancel(batch)
        return drop_late(batch, side, spec, clock.late_us, self.counters if is_counted else None)


def _read_state(spec: TaskSpec, state: TasksState) -> Any:
    values = state.tasks.get(spec.name)
    return spec.join.state_type() if values is None else decode(spec.join.state_type, values)


def _sort_by_task(messages: Sequence[Message]) -> dict[str, list[Message]]:
    """Return the messages of each task, in the order in which they came."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        name, header = json.loads(message.header)
        found.setdefault(name, []).append(message._replace(header=header))
    return found


@dataclass(frozen=True)
class SharedTasksSpec:
    """Several joins of the same two streams that share one exchange."""

    tasks: tuple[TaskSpec, ...]

    state_type: ClassVar[type[TasksState]] = TasksState
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = None

    @property
    def n_units(self) -> int:
        """The number of units of the model."""
        return self._first.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return self._first.has_event_time

    @property
    def has_messages(self) -> bool:
        """Whether units send messages."""
        return self._first.has_messages

    @property
    def router(self) -> Router:
        """The router of the model that all tasks share."""
        return self._first.router

    def with_model(self, model: Any) -> "SharedTasksSpec":
        """Return the same tasks under another model."""
        return SharedTasksSpec(tuple(replace(task, join=task.join.with_model(model)) for task in self.tasks))

    def open(self, slot: int, state: TasksState, open_store: OpenStore) -> TasksUnit:
        """Open the unit ``slot``."""
        return TasksUnit(self.tasks, slot, state, open_store)

    @property
    def _first(self) -> TaskJoin:
        return self.tasks[0].join
