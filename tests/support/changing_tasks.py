"""Random schedules in which tasks are added and removed, units change, and epochs crash.

The oracle is a nested loop that knows in which epoch each task began and ended: a pair of a task is a result
if both tuples arrived while the task ran.
"""

import operator
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.support import oracle
from tests.support.controlled import (
    CONDITION,
    LAST_EPOCHS,
    MAX_UNITS,
    RULES,
    SCHEMA,
    SIDES,
    TASK_CONDITIONS,
    TASKS,
    TASKS_ON_A_CHAIN,
    UNIT,
    CrashingRun,
    Schedule,
    draw_model,
    draw_request,
)
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain
from thetastream.core.sides import Side
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.running_tasks import ColumnTest, RunningTask, WrittenIndex, WrittenJoin
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models import Chain
from thetastream.models.base import Model
from thetastream.runtime.control.plan import TaskRules
from thetastream.runtime.control.request import Request
from thetastream.runtime.control.tasks import list_running

FLAG = "p3"
"""A boolean column of blocks, which is true for ids that 3 divides."""
NAMES = ("wide", "narrow")
COLUMNS = tuple(SCHEMA.names)
MOST_TASKS = 4
TASK_RULES = TaskRules(MOST_TASKS, NAMES, ((*COLUMNS, FLAG), (*COLUMNS, FLAG)), (COLUMNS, COLUMNS))


def make_open_tasks(model: Model) -> SharedTasksSpec:
    """Make the two tasks of a program, to which others may be added. The second one has a filter."""
    made = [
        HandshakeSpec(condition, UNIT.indexes, 2, model)
        if isinstance(model, Chain)
        else TwoStreamSpec(replace(UNIT, condition=condition), model)
        for condition in TASK_CONDITIONS
    ]
    first, second = (TaskSpec(name, join) for name, join in zip(NAMES, made, strict=True))
    return SharedTasksSpec((first, replace(second, passes=(FLAG, None))), is_open=True)


def passes(name: str, join: WrittenJoin | None, side: Side, row: oracle.Row) -> bool:
    """Whether a tuple passes the filters of a task."""
    if join is None:
        return name == "wide" or side is Side.RIGHT or row["id"] % 3 == 0
    values = {**row, FLAG: row["id"] % 3 == 0}
    compare: dict[Any, Any] = {**oracle.COMPARE, "=": operator.eq, "<>": operator.ne}
    return all(
        any(
            values[test.column] is True
            if test.is_flag
            else test.op is None or bool(compare[test.op](values[test.column], test.value))
            for test in clause
        )
        for clause in join.tests[side]
    )


def draw_join(rng: random.Random) -> WrittenJoin:
    """Draw a task to be added: some keys, a window, and filters."""
    low, high = -rng.choice((0, 3, 20)), rng.choice((2, 5, 20))
    dimensions = (Dimension(Side.RIGHT, 1, Bound(1, -rng.randint(0, 3)), None),) * rng.randint(0, 1)
    has_equality = rng.random() < 0.6
    index = WrittenIndex("hash", (0,)) if has_equality else WrittenIndex("scan")
    bound = ColumnTest("v", rng.choice(("<", ">=", "<>")), Domain.INT, rng.randint(2, 7))
    tests = (
        (),
        ((ColumnTest(FLAG, is_flag=True),),),
        ((bound,), (ColumnTest("k"),)),
        (tuple(ColumnTest("v", "=", Domain.INT, rng.randint(2, 7)) for _ in range(3)),),
    )
    return WrittenJoin(
        "drawn",
        (SIDES[0], SIDES[1]),
        (index, index),
        CONDITION.equalities if has_equality else (),
        dimensions,
        Dimension(Side.LEFT, TIME, Bound(TIME, low), Bound(TIME, high)),
        archive_period_us=rng.choice((1, 4)),
        tests=(rng.choice(tests), rng.choice(tests)),
    )


def draw_change(rng: random.Random) -> Request:
    """Draw a request that adds or removes a task. Some are refused."""
    name = rng.choice((*NAMES, "a", "b", "c"))
    if rng.random() < 0.4:
        return Request(remove=name)
    if name in NAMES:
        return Request(add=RunningTask(name, join=draw_join(rng) if rng.random() < 0.1 else None))
    return Request(add=RunningTask(name, join=draw_join(rng)))


@dataclass
class Life:
    """A task that ran: its epochs are [began, ended)."""

    task: RunningTask
    began: int
    ended: int | None = None
    found: Counter[tuple[int, int]] = field(default_factory=Counter)


@dataclass
class ChangingTasks:
    """A run of a schedule, and the lives of its tasks."""

    lives: list[Life]
    kept: list[list[list[oracle.Row]]]
    """The timely tuples of each epoch."""
    run: CrashingRun
    n_changes: int

    def find_expected(self, life: Life) -> Counter[tuple[int, int]]:
        """Find the pairs of a task by the nested loop."""
        join = life.task.join
        if join is None:
            condition: Condition = TASK_CONDITIONS[NAMES.index(life.task.name)]
        else:
            condition = join.condition
        left, right = (
            [
                row
                for epoch in self.kept[life.began : life.ended]
                for row in epoch[side]
                if passes(life.task.name, join, side, row)
            ]
            for side in Side
        )
        return oracle.join(condition, left, right)


def run_changing_tasks(seed: int, kind: str = TASKS, epochs: int = 16) -> ChangingTasks:
    """Run a random schedule of tuples, requests of both kinds, lateness and crashes."""
    rng = random.Random(seed)
    first = draw_model(rng, kind)
    schedule = Schedule(rng, first)
    rules = replace(RULES, routings=(), only_sizes=kind == TASKS_ON_A_CHAIN, tasks=TASK_RULES)
    run = CrashingRun(make_open_tasks(first), first, rules)
    lives = [Life(RunningTask(name), 0) for name in NAMES]
    kept: list[list[list[oracle.Row]]] = []
    number, watermark, late_us, n_changes = 0, None, None, 0
    for epoch in range(epochs):
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            is_scaling = rng.random() < 0.35
            model = run.offset.plan.newest.model
            run.put(draw_request(rng, model, kind) if is_scaling else draw_change(rng))
        rows: list[Any] = []
        for _ in Side:
            rows.append(schedule.draw_rows(10 * epoch, number))
            number += len(rows[-1])
        kept.append([oracle.timely(one, late_us, "t") for one in rows])
        crashes = [rng.randint(0, MAX_UNITS) for _ in range(rng.choice((0, 0, 1, 2)))]
        before = run.offset.plan
        for columns in run.attempt([_make_batch(one) for one in rows], watermark, crashes):
            _add(lives, epoch, columns)
        if run.offset.plan.tasks != before.tasks:
            n_changes += 1
            _follow(lives, list_running(run.offset.plan, NAMES), epoch + 1)
        late_us = watermark
        if rng.random() < 0.8:
            watermark = max(watermark or 0, 10 * epoch - rng.randint(2, 12)) or None
    for epoch in range(epochs, epochs + LAST_EPOCHS):
        if not (run.in_flight or run._is_waiting):
            return ChangingTasks(lives, kept, run, n_changes)
        for columns in run.attempt([], watermark, [rng.randint(0, MAX_UNITS)]):
            _add(lives, epoch, columns)
        kept.append([[], []])
    raise AssertionError("messages never end")


def _make_batch(rows: list[dict[str, int]]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    return batch.append_column(FLAG, pa.array([row["id"] % 3 == 0 for row in rows], pa.bool_()))


def _follow(lives: list[Life], running: tuple[RunningTask, ...], epoch: int) -> None:
    """Begin and end the lives of tasks, of which these run from an epoch on."""
    alive = [life for life in lives if life.ended is None]
    for life in alive:
        if life.task not in running:
            life.ended = epoch
    lives += [Life(task, epoch) for task in running if task not in [life.task for life in alive]]


def _add(lives: list[Life], epoch: int, columns: list[pa.Array]) -> None:
    """Add results to the task of their name that runs in the epoch."""
    name, left, _, _, _, right, _, _, _ = (column.to_pylist() for column in columns)
    alive = {
        life.task.name: life
        for life in lives
        if life.began <= epoch and (life.ended is None or epoch < life.ended)
    }
    for one, *pair in zip(name, left, right, strict=True):
        alive[one].found[pair[0], pair[1]] += 1
