"""The engine of several join tasks: a unit receives each tuple once and keeps a separate state for each task.

For each task: { tuples of the inbox that are not late and pass its filters } -> its own engine.

Late tuples are dropped before any task sees them, so they are counted once. The engine of a task stores the
tuples that pass the filters of the task. It has its own index and archive period, because tasks have
different windows. On a handshake chain, a worker has an instance of the protocol for each task (ESJ,
architecture). The messages of an instance carry the name of its task.

If tasks may be added and removed while the query runs, the state of a unit also says which tasks run:

    epoch e       the unit is told the tasks that run from epoch e + 1 on, and remembers them in its state
    epoch e + 1   a task that is new begins with an empty state; of a task that is gone, nothing is left

All units are told in the same epoch, so a pair of an added task is found if both tuples arrive from epoch
e + 1 on: the unit that stores one of them and is probed by the other runs the task in both of their epochs.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import cancel
from thetastream.core.condition import Condition
from thetastream.core.errors import StateError
from thetastream.core.records import decode, encode
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import drop_late
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters, SendingCounters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import Engine, EngineSpec, OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.running_tasks import Clause, RunningTask, decide_clause
from thetastream.engine.store.segment import SegmentStore
from thetastream.index import IndexSpec
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

    def with_condition(
        self, condition: Condition, indexes: tuple[IndexSpec, IndexSpec], archive_period_us: int | None
    ) -> "TaskJoin":
        """Return a join of another condition under the same model."""


@dataclass(frozen=True)
class TaskSpec:
    """The fixed properties of one task. Picklable."""

    name: str
    join: TaskJoin
    """The task as a join of its own. All tasks have the same model."""
    passes: tuple[str | None, str | None] = (None, None)
    """Boolean columns of left and of right blocks that are true for the tuples that pass the filters of this
    task. None means that all tuples pass."""
    since: int = 0
    """The version of the control plan that began the task, as ``RunningTask.since``."""
    tests: tuple[tuple[Clause, ...], tuple[Clause, ...]] = ((), ())
    """The filters of left and of right tuples that a unit decides itself, because the task was added."""

    @property
    def key(self) -> int | str:
        """What tells the state and the messages of this task from those of others (``RunningTask.key``)."""
        return RunningTask(self.name, self.since).key

    def select_passing(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Select the tuples that pass the filters of this task, with the columns that it needs."""
        spec, passes = self.join.condition.sides[side], self.passes[side]
        mine = batch.select([*spec.columns, *spec.computed])
        masks = [] if passes is None else [np.asarray(batch.column(passes).to_numpy(zero_copy_only=False))]
        masks += [decide_clause(clause, batch) for clause in self.tests[side]]
        if not masks:
            return mine
        mask = np.logical_and.reduce(masks)
        return mine if mask.all() else mine.filter(pa.array(mask))


@dataclass
class TasksState:
    """The state that a unit of several tasks keeps from epoch to epoch."""

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The state of each task in plain values, by the name of the task."""
    added: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The state of each task that has begun later, by the version of the control plan that began it."""
    running: tuple[RunningTask, ...] | None = None
    """The tasks that run in the next epoch; None for those of the program."""

    def find(self, key: int | str) -> dict[str, Any] | None:
        """Find the state of the task with this key; None if it has none yet."""
        return self.added.get(key) if isinstance(key, int) else self.tasks.get(key)


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
    query : SharedTasksSpec
        The tasks of the program, which join the same streams under the same model. The model must not route
        by values that only one task compares.
    slot : int
        The number of this unit.
    state : TasksState
        The state before this epoch, from the manifest.
    open_store : callable
        Opens a store for the segments of a task.
    """

    def __init__(self, query: "SharedTasksSpec", slot: int, state: TasksState, open_store: OpenStore) -> None:
        self._specs = query.list_tasks(state.running)
        self._emits_names = query.is_open
        self._running = state.running
        self._stores: dict[int | str, SegmentStore] = {}
        first = query.tasks[0].join
        self._homes = [first.model.counts(slot, side) for side in Side]
        self._engines: dict[int | str, Engine] = {}
        for spec in self._specs:
            # An engine drops segments of this epoch only through the store in which it has put them.
            def open_own(plans: Any, key: int | str = spec.key) -> SegmentStore:
                self._stores[key] = open_store(plans)
                return self._stores[key]

            self._engines[spec.key] = spec.join.open(slot, _read_state(spec, state), open_own)
        self.counters = SendingTasksCounters() if first.has_messages else TasksCounters()
        self._sides = first.condition.sides
        self.counters.list_streams(self._sides[side].alias for side in Side if self._homes[side])

    @property
    def state(self) -> TasksState:
        """The current state."""
        kept = TasksState(running=self._running)
        for key, engine in self._engines.items():
            if isinstance(key, int):
                kept.added[key] = encode(engine.state)
            else:
                kept.tasks[key] = encode(engine.state)
        return kept

    @property
    def messages(self) -> list[Message]:
        """The messages of all tasks. Each carries the key of its task."""
        return [
            message._replace(header=json.dumps([key, message.header]))
            for key, engine in self._engines.items()
            for message in engine.messages
        ]

    @property
    def is_waiting(self) -> bool:
        """Whether a task needs another epoch even if no new tuples arrive."""
        return any(engine.is_waiting for engine in self._engines.values())

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch, task by task.

        Yield the number of the task, or its name if tasks may be added, followed by the columns of the left
        and of the right tuples of its matches.
        """
        # 1. Drop late tuples.
        blocks = {(side, role): self._drop_late(inbox, side, role, clock) for side in Side for role in Role}
        messages = _sort_by_task(inbox.messages)
        # 2. Join.
        for number, spec in enumerate(self._specs):
            mine = Inbox(peers=inbox.peers)
            for message in messages.get(spec.key, []):
                mine.deliver(message, 0)
            for (side, role), batch in blocks.items():
                if batch is not None:
                    mine.add(side, role, 0, spec.select_passing(side, batch), 0)
            for columns in self._engines[spec.key].epoch(mine, clock):
                yield [self._label(number, len(columns[0])), *columns]
        # 3. Count.
        self.counters.received, self.counters.received_bytes = inbox.received, inbox.received_bytes
        for spec in self._specs:
            self.counters.add_task(spec.name, self._engines[spec.key].counters)
        # 4. Remember the tasks of the next epoch, and forget those that end.
        if inbox.tasks is not None:
            self._running = decode(tuple[RunningTask, ...], inbox.tasks)
            self._forget({task.key for task in self._running})

    def _label(self, number: int, n: int) -> pa.Array:
        """Make the column of results that says from which task they are."""
        if self._emits_names:
            return pa.repeat(self._specs[number].name, n)
        return pa.array(np.full(n, number, np.int32))

    def _forget(self, kept: Collection[int | str]) -> None:
        """Drop the state of the tasks whose keys are not kept, and the messages that they send."""
        for key in [key for key in self._engines if key not in kept]:
            for meta in self._engines.pop(key).state.segments:
                self._stores[key].drop(meta)

    def _drop_late(self, inbox: Inbox, side: Side, role: Role, clock: Clock) -> pa.RecordBatch | None:
        """Return the timely tuples of one side and role; None if no block came.

        A tuple that is inserted and deleted in the epoch is neither timely nor late. A block without tuples
        is kept, because it says that the stream goes on.
        """
        batch = inbox.batch(side, role)
        if batch is None:
            return None
        is_counted = role.is_counted and self._homes[side]
        batch = cancel(batch)
        return drop_late(batch, side, self._sides[side], clock.late_us, self.counters if is_counted else None)


def _read_state(spec: TaskSpec, state: TasksState) -> Any:
    values = state.find(spec.key)
    return spec.join.state_type() if values is None else decode(spec.join.state_type, values)


def _sort_by_task(messages: Sequence[Message]) -> dict[int | str, list[Message]]:
    """Return the messages of each task by its key, in the order in which they came."""
    found: dict[int | str, list[Message]] = {}
    for message in messages:
        key, header = json.loads(message.header)
        found.setdefault(key, []).append(message._replace(header=header))
    return found


@dataclass(frozen=True)
class SharedTasksSpec:
    """Several joins of the same two streams that share one exchange."""

    tasks: tuple[TaskSpec, ...]
    """The tasks of the program."""
    is_open: bool = False
    """Whether tasks may be added and removed while the query runs. Units then emit the name of the task."""

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
        tasks = tuple(replace(task, join=task.join.with_model(model)) for task in self.tasks)
        return replace(self, tasks=tasks)

    def open(self, slot: int, state: TasksState, open_store: OpenStore) -> TasksUnit:
        """Open the unit ``slot``."""
        return TasksUnit(self, slot, state, open_store)

    def list_tasks(self, running: Sequence[RunningTask] | None) -> tuple[TaskSpec, ...]:
        """List the tasks that run; ``running`` is None before the first change.

        Raises
        ------
        StateError
            STATE_OF_ANOTHER_QUERY if the program does not know one of them.
        """
        if running is None:
            return self.tasks
        known = {task.name: task for task in self.tasks}
        found = []
        for task in running:
            if not self.is_open or (task.join is None and task.name not in known):
                raise StateError(
                    "STATE_OF_ANOTHER_QUERY",
                    "the tasks of the query have changed while it ran, and the program does not know "
                    f"{task.name!r} now; give max_tasks, and the tasks with which the query first started",
                )
            if task.join is None:
                found.append(replace(known[task.name], since=task.since))
                continue
            join = task.join
            own = self._first.with_condition(join.condition, join.index_specs, join.archive_period_us)
            found.append(TaskSpec(task.name, own, since=task.since, tests=join.tests))
        return tuple(found)

    @property
    def _first(self) -> TaskJoin:
        return self.tasks[0].join
