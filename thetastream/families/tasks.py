"""Several join tasks over the same two streams, as one plan. What they share is sent once.

    sent(s) = { (t, keys of all tasks, tasks that t passes) : t in s, t passes the filters of some task }

If several tasks need the same key, it is one column. A key that is a payload column needs no column. A key
that is computed for a task is guarded by the filters that only this task has. In the task's own join, tuples
that do not pass these filters would not be evaluated either.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from thetastream.core.columns import SIGN
from thetastream.core.errors import QueryError
from thetastream.core.identity import TASKS, Part
from thetastream.core.sides import Side
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.families.base import Facts
from thetastream.families.chain import ChainPlan
from thetastream.families.pairs.cost import compute_shares
from thetastream.families.pairs.flow import describe_pairs, open_choice
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.families.pairs.plan import PairsPlan
from thetastream.lowering.domains import write_literal
from thetastream.lowering.identity import MODEL, Parts, Reading, identify_model
from thetastream.lowering.lower import write_guarded
from thetastream.lowering.payload import rename_columns
from thetastream.lowering.physical import Filter, PhysicalPlan, SidePlan
from thetastream.lowering.query import Stream
from thetastream.lowering.report import Fact, Section, format_average, format_one_line
from thetastream.models.base import Model
from thetastream.models.multiway import Multiway
from thetastream.runtime.control.plan import Rules, TaskRules
from thetastream.runtime.flow import Flow, Output, RunContext, UnitStage

TASK = "task"
"""The text column of results that names the task. The units emit the number of the task instead, unless tasks
may be added."""
Filters = tuple[Filter, ...]
PlanOfTask: TypeAlias = PairsPlan | ChainPlan
"""The plan of a task as a join of its own."""


@dataclass(frozen=True)
class Task:
    """One join task behind the shared exchange."""

    name: str
    plan: PhysicalPlan
    """The plan of its own join, in which key columns have the names of the shared blocks."""
    passes: tuple[str | None, str | None]
    """Left and right block columns that are true for tuples that pass its filters. None means all pass."""


@dataclass(frozen=True, repr=False)
class TasksPlan:
    """Join tasks that run behind one exchange."""

    alone: Mapping[str, PlanOfTask]
    """Each task as a join of its own, by its name. All tasks have the same model."""
    sides: tuple[SidePlan, SidePlan]
    """What both streams send."""
    tasks: tuple[Task, ...]
    guards: tuple["Guards", "Guards"]
    """For which tuples routers compute the columns of both streams."""
    max_tasks: int | None = None
    """The largest number of tasks at once; None if tasks are neither added nor removed."""

    @property
    def names(self) -> list[str]:
        """The names of the tasks."""
        return [task.name for task in self.tasks]

    @property
    def first(self) -> PlanOfTask:
        """The first task, which has the streams, the model and the settings of all."""
        return next(iter(self.alone.values()))

    @property
    def model(self) -> Model:
        """The model of all tasks."""
        return self.first.model

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""
        return self.first.inputs

    @property
    def models(self) -> tuple[Model, ...]:
        """The model of all tasks."""
        return (self.model,)

    @property
    def run(self) -> RunContext:
        """The settings with which the units run."""
        return self.first.run

    @property
    def facts(self) -> Facts:
        """What the code around the join must know of it."""
        first = self.first.facts
        return Facts(
            condition="; ".join(f"{name}: {plan.facts.condition}" for name, plan in self.alone.items()),
            result_time=first.result_time,
            shows_result_time=first.shows_result_time,
            has_deletes=first.has_deletes,
            is_prompt=first.is_prompt,
            final="several tasks have no common select list",
        )

    def explain(self) -> tuple[Section, ...]:
        """Return a section for the shared plan, and one for the plan of each task by name."""
        return (
            Section("Shared by all tasks", tuple(_explain_shared(self)), width=9, marks="===="),
            *(
                Section(f"Task {name}", sections=plan.explain(), marks="====")
                for name, plan in self.alone.items()
            ),
        )

    def flow(self, read: Collection[str] | None = None) -> Flow:
        """Describe how tuples become the results of all tasks. Units emit whole rows."""
        reading, choose = self.first.reading, self.first.chosen.choose
        spec = SharedTasksSpec(
            tuple(
                TaskSpec(task.name, self.alone[task.name].build_task(task.plan), task.passes)
                for task in self.tasks
            ),
            is_open=self.max_tasks is not None,
        )
        stage = UnitStage(spec, describe_tagged_pairs(self), open_choice(reading, choose, spec.with_model))
        # Each task has keys of its own. The event times of the streams are the same for all.
        keys = self.tasks[0].plan.condition.sides
        return Flow(self.sides, keys, (stage,), identify_tasks(self, reading), self.find_rules())

    def find_rules(self) -> Rules | None:
        """Find how the units of all tasks may change while they run; None if they do not change.

        A unit has the tuples of all tasks. So it can leave if the tuples of each task expire, and another
        model must route by tuples alone too.
        """
        found = [rules for plan in self.alone.values() if (rules := plan.find_rules()) is not None]
        if not found:
            return None
        left, right = (any(rules.never_expires[side] for rules in found) for side in Side)
        tasks = None if self.max_tasks is None else self._find_task_rules(self.max_tasks)
        return replace(found[0], routings=(), never_expires=(left, right), moves_tuples=False, tasks=tasks)

    def _find_task_rules(self, most: int) -> TaskRules:
        columns = [
            (*(carried.block_column for carried in side.carried), *(name for name, _ in side.computed))
            for side in self.sides
        ]
        results = [tuple(carried.block_column for carried in side.carried) for side in self.sides]
        return TaskRules(most, tuple(self.names), (columns[0], columns[1]), (results[0], results[1]))


class Guards(NamedTuple):
    """For which tuples of one stream routers compute columns, by the filters of the tasks of the program."""

    keys: Mapping[str, Sequence[Filters]]
    """For each key column, lists of filters. It has its value for tuples that pass one of the lists."""
    passes: Mapping[Filters, str]
    """For each list of filters, the block column that says which tuples pass it."""


class _MergedSide(NamedTuple):
    """The plan of one stream for all tasks."""

    side: SidePlan
    passes: list[str | None]
    """For each task, the block column that is true for tuples that pass its filters, or None."""
    guards: Guards


def share(plans: Mapping[str, PlanOfTask], max_tasks: int | None = None) -> TasksPlan:
    """Combine the plans of joins over the same two streams into one plan with a task for each join.

    With ``max_tasks``, tasks may be added later, so all tuples are sent.
    """
    is_open = max_tasks is not None
    left, right = (_merge([plan.physical.sides[side] for plan in plans.values()], is_open) for side in Side)
    tasks = [
        Task(name, rename_keys(plan.physical), passes)
        for (name, plan), passes in zip(
            plans.items(), zip(left.passes, right.passes, strict=True), strict=True
        )
    ]
    guards = left.guards, right.guards
    return TasksPlan(plans, (left.side, right.side), tuple(tasks), guards, max_tasks)


def find_sharing_problem(model: Model, is_streaming: bool) -> QueryError | None:
    """Return an error if several tasks cannot share the exchange of a model, or None if they can."""
    if isinstance(model, Multiway) and not is_streaming:
        return find_sharing_problem(model.on_batch, is_streaming=True)
    obstacle = "runs one join, hop by hop" if isinstance(model, Multiway) else None
    if model.needs_places:
        obstacle = "routes by what one condition compares"
    if obstacle is None:
        return None
    return QueryError(
        "TASKS_MODEL",
        f"tasks need a model that routes by tuples alone, and {model!r} {obstacle}; "
        "use th.Biclique(units), th.Matrix(rows, columns), th.Split(cores) or th.Chain(workers), "
        "or leave model out",
    )


def _merge(sides: Sequence[SidePlan], is_open: bool) -> _MergedSide:
    # 1. Find the filters that all tasks share. If each task has others, a tuple must pass those of some task.
    # A task that is added later may need any tuple.
    shared = [] if is_open else _find_shared([side.filters for side in sides])
    own = [tuple(one for one in side.filters if one not in shared) for side in sides]
    filters = [*shared, *([Filter(_write_any(own))] if all(own) and not is_open else [])]
    # 2. Compute each key for the tuples that pass a task which needs the key.
    asked: dict[str, tuple[str, list[Filters]]] = {}
    for side, guard in zip(sides, own, strict=True):
        for column, text in side.computed:
            # Late tuples are dropped before any task, so each tuple has its sign.
            name = name_shared_column(column, text)
            asked.setdefault(name, (text, []))[1].append(() if column == SIGN else guard)
    computed = [(name, _write_guarded_key(text, guards)) for name, (text, guards) in asked.items()]
    # 3. Compute which tuples pass which task.
    columns = {guard: _name_guard(guard) for guard in dict.fromkeys(filter(None, own))}
    computed += [(column, _write_any([guard])) for guard, column in columns.items()]
    merged = replace(sides[0], filters=tuple(filters), computed=tuple(computed))
    guards = Guards({name: lists for name, (_, lists) in asked.items()}, columns)
    return _MergedSide(merged, [columns.get(guard) for guard in own], guards)


def _find_shared(filters: Sequence[Filters]) -> list[Filter]:
    """Return the filters that may run before all tasks.

    These are the filters with which all tasks begin, and other common filters that cannot raise an error.

    >>> common = Filter("1 / x > y"), Filter.require("a.y")
    >>> [one.text for one in _find_shared([(Filter("x <> 0"), *common), (Filter("x > 0"), *common)])]
    ['(a.y) IS NOT NULL']
    """
    first, *others = filters
    common = [one for one in first if all(one in other for other in others)]
    n = 0
    while n < len(first) and all(other[: n + 1] == first[: n + 1] for other in others):
        n += 1
    return [*first[:n], *(one for one in common if one not in first[:n] and one.is_of_column)]


def name_shared_column(column: str, text: str) -> str:
    """Name a key column by a hash of its expression. So the name does not depend on the other tasks.

    The sign of a tuple keeps its name.
    """
    return SIGN if column == SIGN else f"k_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _name_guard(guard: Filters) -> str:
    """Name the column of the tuples that pass filters by a hash, so that it does not depend on other tasks.

    >>> _name_guard((Filter("x > 0"),))
    'p_0110aafa6cb1'
    """
    return f"p_{hashlib.sha256(json.dumps([one.text for one in guard]).encode()).hexdigest()[:12]}"


def _write_any(guards: Sequence[Filters]) -> str:
    """Write an expression that is true if all filters of at least one guard are true, and false otherwise.

    >>> _write_any([(Filter("x > 0"), Filter("y > 0"))])
    'coalesce(CASE WHEN x > 0 THEN CASE WHEN y > 0 THEN true END END, false)'
    """
    return f"coalesce({', '.join(write_guarded(guard, 'true') for guard in dict.fromkeys(guards))}, false)"


def _write_guarded_key(text: str, guards: Sequence[Filters]) -> str:
    """Write the key, which is NULL unless a tuple passes one of the guards.

    >>> _write_guarded_key("1 / x", [(Filter("x > 0"),), (Filter("x < 0"),)])
    'coalesce(CASE WHEN x > 0 THEN 1 / x END, CASE WHEN x < 0 THEN 1 / x END)'
    >>> _write_guarded_key("1 / x", [(Filter("x > 0"),), ()])
    '1 / x'
    """
    if not all(guards):
        return text
    cases = [write_guarded(guard, text) for guard in dict.fromkeys(guards)]
    return cases[0] if len(cases) == 1 else f"coalesce({', '.join(cases)})"


def rename_keys(plan: PhysicalPlan) -> PhysicalPlan:
    """Rename the key columns of a plan to those of the shared blocks."""
    names = [
        {column: name_shared_column(column, text) for column, text in side.computed} for side in plan.sides
    ]
    sides = [
        replace(side, computed=tuple((name_shared_column(*one), one[1]) for one in side.computed))
        for side in plan.sides
    ]
    return replace(plan, sides=(sides[0], sides[1]), condition=rename_columns(plan.condition, names))


def _explain_shared(plan: TasksPlan) -> Iterator[Fact]:
    yield Fact("tasks", ", ".join(plan.names))
    yield Fact("model", plan.model.describe())
    copies = ", ".join(format_average(stream.sends) for stream in compute_shares(plan.model))
    yield Fact("exchange", f"one for all tasks; sends a tuple: {copies}")
    for side, stream in zip(Side, plan.sides, strict=True):
        for one in stream.filters:
            yield Fact("before", f"{stream.alias}: {format_one_line(one.text)}")
        for column, text in stream.computed:
            users = [
                task.name
                for task in plan.tasks
                if column in (task.passes[side], *(name for name, _ in task.plan.sides[side].computed))
            ]
            value = f"{stream.alias}: {column} = {format_one_line(text)}"
            yield Fact("before", value, f"for {', '.join(users)}")
        if not stream.computed:
            yield Fact("before", f"{stream.alias}: nothing computed; keys are payload columns")
    if plan.max_tasks is not None:
        yield Fact(
            "changes", f"tasks may be added and removed, {plan.max_tasks} at once; all tuples are sent"
        )
    yield Fact("state", "each task stores what passes its filters, for its own window")


def describe_tagged_pairs(plan: TasksPlan) -> Output:
    """Describe the output of several joins: the column ``task``, and one struct column per alias."""
    first = describe_pairs(plan.sides, ())
    residual = tuple(
        f"CASE WHEN {TASK} = {write_literal(task.name)} THEN ({conjunct}\n) ELSE true END"
        for task in plan.tasks
        for conjunct in task.plan.residual
    )
    if plan.max_tasks is not None:
        return Output((f"{TASK} string", *first.columns), (TASK, *first.restored), residual)
    names = ", ".join(map(write_literal, plan.names))
    name = f"get(array({names}), {TASK}) AS {TASK}"
    return Output((f"{TASK} int", *first.columns), (name, *first.restored), residual)


def identify_tasks(plan: TasksPlan, reading: Reading) -> Parts:
    """Return the identity of several joins behind one exchange: the task names and the parts of each task."""
    names = ", ".join(sorted(plan.names))
    parts = {TASKS: Part(names, names), MODEL: identify_model(plan.model, reading)}
    for task in plan.tasks:
        for name, part in identify_two_streams(task.plan, plan.model, reading).items():
            if name.startswith("stream "):
                parts[name] = part
            elif name != MODEL:
                parts[f"{name} of task {task.name!r}"] = part
    return parts
