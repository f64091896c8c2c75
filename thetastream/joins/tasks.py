"""Plans several joins of the same two streams over one exchange.

{ (task, l, r) : l in LEFT, r in RIGHT, condition_task(l, r) is TRUE, both inside the task's window }
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from thetastream.core.errors import QueryError, ThetastreamError, list_problems, raise_problems
from thetastream.core.identity import digest
from thetastream.engine.running_tasks import RunningTask, WrittenJoin
from thetastream.families.added_tasks import write_task
from thetastream.families.chain import CHAIN
from thetastream.families.options import SESSION_PREFIX, TaskOptions, read_options
from thetastream.families.pairs.choose import (
    Choose,
    ChosenModel,
    build_default_model,
    find_semantic_problem,
)
from thetastream.families.pairs.plan import PAIRS
from thetastream.families.tasks import TASK, PlanOfTask, TasksPlan, find_sharing_problem, share
from thetastream.families.windows import is_counted
from thetastream.joins.ask.model import read_named_model
from thetastream.joins.ask.request import read_request
from thetastream.joins.ask.streams import StreamInput, read_frames, refuse_tables
from thetastream.joins.handle import ControlHandle, control
from thetastream.joins.joined import PlannedInput, UnitsJoin
from thetastream.joins.plan import Plan
from thetastream.models.base import Model, ModelName
from thetastream.runtime.control.request import Request
from thetastream.spark.dataflow.stages import identify_query
from thetastream.spark.session.configure import count_partitions, read_meaning, read_settings

OWN_OPTIONS = ("index", "archive_period")
"""The options that each task of ``th.join_many`` may have of its own."""
TASK_SETTINGS = ("on", "within", *OWN_OPTIONS)
"""The keys of a task."""


@dataclass(frozen=True)
class _Asked:
    """What was asked of all tasks, from which each of them is planned."""

    frames: Mapping[str, DataFrame]
    model: Model
    settings: Mapping[str, Any]

    def plan(self, task: Mapping[str, Any]) -> PlanOfTask:
        """Plan a task as a join of its own."""
        own = {key: task[key] for key in OWN_OPTIONS if key in task}
        settings = {**self.settings, **own}
        request = read_request(
            self.frames, task["on"], task.get("within"), self.model, settings, door=TaskOptions
        )
        return (CHAIN if CHAIN.takes(request) else PAIRS).plan(request)


class JoinTasks(Mapping[str, DataFrame]):
    """Join tasks that are checked and planned but not started: a mapping of task names to DataFrames."""

    def __init__(self, shared: TasksPlan, given: tuple[PlannedInput, ...], asked: _Asked) -> None:
        self._shared, self._asked = shared, asked
        self.plan = Plan(UnitsJoin(shared, given))
        """The plan of all tasks behind one exchange. Its DataFrame is ``together``."""
        self._alone = {name: Plan(UnitsJoin(planned, given)) for name, planned in shared.alone.items()}

    def __getitem__(self, task: str) -> DataFrame:
        return self._alone[task].dataframe()

    def __iter__(self) -> Iterator[str]:
        return iter(self._alone)

    def __len__(self) -> int:
        return len(self._alone)

    def __repr__(self) -> str:
        """Describe the tasks in two lines."""
        return repr(self.plan)

    def _repr_html_(self) -> str:
        """Return the description that notebooks show."""
        return self.plan._repr_html_()

    @cached_property
    def together(self) -> DataFrame:
        """The results of all tasks over one exchange: the column ``task``, and the columns of ``th.join``."""
        return self.plan.dataframe()

    def split(self, batch: DataFrame) -> dict[str, DataFrame]:
        """Split a batch of ``together``, as ``foreachBatch`` passes it, into one DataFrame per task.

        Each DataFrame has the columns that ``th.join`` returns. It is a filter over the rows of the batch, so
        persist the batch before you write several of them.

        >>> def save(batch, epoch):
        ...     for name, found in pairs.split(batch.persist()).items():
        ...         found.write.mode("append").parquet(f"out/{name}")
        ...     batch.unpersist()
        >>> query = pairs.together.writeStream.foreachBatch(save).start()  # doctest: +SKIP

        If tasks may be added (``max_tasks``), this runs a Spark job that finds the tasks of the batch. There
        is a DataFrame for each of them, and for each task of the program.
        """
        names = list(self)
        if self._shared.max_tasks is not None:
            found = sorted(row[0] for row in batch.select(TASK).distinct().collect())
            names += [name for name in found if name not in self]
        return {name: batch.where(batch[TASK] == name).drop(TASK) for name in names}

    def add(
        self,
        query: Any,
        task: str,
        *,
        on: Any = None,
        within: Any = None,
        index: str | None = None,
        archive_period: Any = None,
    ) -> str:
        """Ask for one more task of a running query that was started with ``max_tasks``. Nothing restarts.

        The task begins in the second epoch from now, with nothing stored. Its results are the pairs whose
        tuples both arrive from then on. In ``together``, they have the name of the task.

        Parameters
        ----------
        query : StreamingQuery, str or Path
            The query that runs ``together``, or its checkpoint, as for ``th.control``.
        task : str
            The name of the task.
        on, within, index, archive_period : optional
            The task, as in ``th.join_many``. The names are those of the streams of ``th.join_many``. Without
            ``on``, a task of the program that was removed begins again.

        Returns
        -------
        str
            The name of the request, by which ``th.control(query).status()["requests"]`` says what became of
            it.

        Raises
        ------
        QueryError
            CANNOT_ADD_TASK if the task needs what the running query does not send. TASKS if a task of this
            name runs, or the query was started without ``max_tasks``. MAX_TASKS if too many tasks run. The
            errors of ``th.join_many`` and ``th.control``. Nothing has changed then.

        Examples
        --------
        >>> pairs.add(query, "wide", on="abs(a.price - b.bid) <= 1", within="5 seconds")  # doctest: +SKIP
        """
        given = {"on": on, "within": within, "index": index, "archive_period": archive_period}
        found = {key: value for key, value in given.items() if value is not None}
        handle = self._control(query)
        if not found:
            return handle.request(Request(add=RunningTask(task)))
        raise_problems(list(_find_problems(self._asked.frames, {task: found})))
        return handle.request(Request(add=RunningTask(task, join=self._write(found))))

    def remove(self, query: Any, task: str) -> str:
        """Ask that a task of a running query ends. Nothing restarts, and the other tasks go on.

        The next epoch is its last one. Then its stored tuples are dropped.

        Parameters
        ----------
        query : StreamingQuery, str or Path
            As in ``add``.
        task : str
            The name of the task.

        Returns
        -------
        str
            The name of the request.

        Raises
        ------
        QueryError
            TASKS if no task of this name runs, or it is the only one, or the query was started without
            ``max_tasks``. The errors of ``th.control``.

        Examples
        --------
        >>> pairs.remove(query, "near")  # doctest: +SKIP
        """
        return self._control(query).request(Request(remove=task))

    def _write(self, task: Mapping[str, Any]) -> WrittenJoin:
        """Plan a task that is to be added, and write it as plain values."""
        if self._shared.max_tasks is None:
            what = "tasks can be added only to a query that was started with max_tasks"
            raise QueryError("TASKS", f"{what}; give max_tasks to th.join_many")
        return write_task(self._shared, self._asked.plan(task))

    def _control(self, query: Any) -> ControlHandle:
        """Make a handle on the join of these tasks in a query."""
        spark = next(iter(self._asked.frames.values())).sparkSession
        return control(query, digest(identify_query(self._shared.flow(), read_meaning(spark))))

    def explain(self) -> str:
        """Return what all tasks share, and the plan of each task, as text."""
        return self.plan.explain()


def plan_tasks(
    streams: Mapping[str, Any],
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | ModelName | None,
    options: Mapping[str, Any],
) -> JoinTasks:
    """Plan the tasks of ``th.join_many``. It takes the parameters of ``th.join_many``."""
    # 1. Read the request for all tasks.
    frames = read_frames(streams)
    refuse_tables(frames)
    frame = next(iter(frames.values()))
    of_session = read_settings(frame.sparkSession, SESSION_PREFIX)
    given, problems = read_options(options, of_session, TaskOptions)
    if len(frames) != 2:
        raise QueryError(
            "STREAM_COUNT", f"tasks share two streams, not {len(frames)} ({', '.join(frames)}); use th.join"
        )
    named, found = read_named_model(model)
    raise_problems([*problems, *_find_problems(frames, tasks), *found])
    reason = "as asked for, for all tasks"
    choose: Choose | None = None
    if named is None:
        named = build_default_model(count_partitions(frame.sparkSession))
        choose = build_default_model
        reason = "left out: runs any condition, and routes by tuples alone"
    if given.values.get("max_tasks") is not None:
        # Changes of tasks go the way of changes of units.
        given.values.setdefault("max_units", named.n_units)
    # Tuples have other places under each condition.
    refused = find_sharing_problem(named, frame.isStreaming) or find_semantic_problem(
        given.values.get("shed"), None
    )
    if refused is not None:
        raise refused
    # 2. Plan each task as a join of its own.
    asked = _Asked(frames, named, given.values)
    plans: dict[str, PlanOfTask] = {}
    wrong: dict[str, list[ThetastreamError]] = {}
    for name, task in tasks.items():
        try:
            plan = asked.plan(task)
        except ThetastreamError as error:
            wrong[name] = list(list_problems(error))
            continue
        plans[name] = replace(plan, chosen=ChosenModel(plan.model, reason, choose))
    raise_problems(_name_tasks(wrong, len(tasks)))
    # 3. Plan what the tasks share.
    max_tasks = given.values.get("max_tasks")
    if max_tasks is not None:
        _refuse_changes_of_tasks(plans, max_tasks)
    given_streams = tuple(map(StreamInput, frames.values()))
    return JoinTasks(share(plans, max_tasks), given_streams, asked)


def _refuse_changes_of_tasks(plans: Mapping[str, PlanOfTask], max_tasks: int) -> None:
    """Refuse that tasks change if they are too many, or if a task that begins later would not be exact.

    The delete of a row that arrived before a task began would have no insert there.
    """
    if len(plans) > max_tasks:
        what = f"max_tasks must be at least {len(plans)}, the number of tasks"
        raise QueryError("MAX_TASKS", f"{what}, not {max_tasks}")
    if any(plan.facts.has_deletes for plan in plans.values()):
        what = "a stream has deletes, and a task that begins later has not seen the inserts of all of them"
        raise QueryError("CANNOT_ADD_TASK", f"{what}; leave max_tasks out")


def _find_problems(streams: Mapping[str, DataFrame], tasks: object) -> Iterator[QueryError]:
    """Yield the problems that are found before any condition is read."""
    if not isinstance(tasks, Mapping) or not tasks:
        yield QueryError(
            "TASKS", f'tasks must map names to mappings, {{"near": {{"on": ...}}}}, not {tasks!r}'
        )
        return
    if TASK in map(str.casefold, streams):
        yield QueryError("INVALID_ALIAS", f"results have a column {TASK!r}; rename the stream")
    for name, task in tasks.items():
        if not isinstance(name, str) or not name:
            yield QueryError("TASKS", f"a task's name must be text, not {name!r}")
        elif not isinstance(task, Mapping) or "on" not in task:
            yield QueryError("TASKS", f'task {name!r} must be a mapping with "on", not {task!r}')
        else:
            yield from _find_task_problems(name, task)


def _find_task_problems(name: str, task: Mapping[str, Any]) -> Iterator[QueryError]:
    for key in task:
        if key not in TASK_SETTINGS:
            what = f"task {name!r} sets {key!r}, and a task may set {', '.join(TASK_SETTINGS)}"
            yield QueryError("UNKNOWN_SETTING", f"{what}; other settings apply to all tasks")
    if is_counted(task.get("within")):
        what = f"task {name!r} counts tuples, and streams that several tasks filter have no common count"
        yield QueryError("COUNT_WINDOW", f"{what}; use a time window, or th.join for this task alone")


def _name_tasks(wrong: Mapping[str, list[ThetastreamError]], n_tasks: int) -> list[ThetastreamError]:
    """Prefix each problem with the tasks that have it. A problem that all tasks have gets no prefix."""
    seen: dict[str, tuple[ThetastreamError, list[str]]] = {}
    for name, problems in wrong.items():
        for problem in problems:
            seen.setdefault(str(problem), (problem, []))[1].append(name)
    return [
        problem
        if len(names) == n_tasks
        else type(problem)(
            problem.condition, f"task {', '.join(map(repr, dict.fromkeys(names)))}: {problem.message}"
        )
        for problem, names in seen.values()
    ]
