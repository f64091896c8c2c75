"""Several joins of the same two streams: read, checked, planned; one exchange for all of them.

{ (task, l, r) : l in LEFT, r in RIGHT, condition_task(l, r) is TRUE, both inside the task's window }
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from thetastream.binary import JoinPlan, plan_binary
from thetastream.errors import QueryError, ThetastreamError, problems_of, raise_problems
from thetastream.frontend.window import is_counted
from thetastream.models import Multiway
from thetastream.models.base import Model
from thetastream.plan.choose import usual
from thetastream.plan.explain_tasks import explain_tasks
from thetastream.plan.tasks import TASK, TasksPlan, share

OF_A_TASK = ("on", "within", "index", "archive_period")


@dataclass(frozen=True, eq=False)
class JoinTasks(Mapping[str, DataFrame]):
    """Join tasks that are checked and planned, and have not started: each task's DataFrame by its name."""

    plans: Mapping[str, JoinPlan]
    """Each task as a join of its own."""
    shared: TasksPlan
    """All of them behind one exchange."""

    def __getitem__(self, task: str) -> DataFrame:
        return self.plans[task].dataframe()

    def __iter__(self) -> Iterator[str]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    @property
    def model(self) -> Model:
        """Of all tasks."""
        return next(iter(self.plans.values())).model

    @cached_property
    def together(self) -> DataFrame:
        """The results of all tasks over one exchange: the column ``task`` and one struct column per alias."""
        from thetastream.spark.tasks import build_tasks

        first = next(iter(self.plans.values()))
        return build_tasks(self.shared, self.model, first.streams, first.cache_folder)

    def split(self, batch: DataFrame) -> dict[str, DataFrame]:
        """Rows of ``together``, as ``foreachBatch`` hands them out, task by task, as ``th.join`` would.

        Each is a filter over the same rows: persist the batch if several are written.

        >>> def save(batch, epoch):
        ...     for name, found in pairs.split(batch.persist()).items():
        ...         found.write.mode("append").parquet(f"out/{name}")
        ...     batch.unpersist()
        >>> query = pairs.together.writeStream.foreachBatch(save).start()  # doctest: +SKIP
        """
        return {name: batch.where(batch[TASK] == name).drop(TASK) for name in self}

    def explain(self) -> str:
        """What tasks share, and every stage of each of them, as text."""
        return explain_tasks(
            self.shared, self.model, {name: plan.explain() for name, plan in self.plans.items()}
        )


def plan_tasks(
    streams: Mapping[str, DataFrame],
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | str | None,
    settings: Mapping[str, Any],
    problems: Sequence[ThetastreamError] = (),
) -> JoinTasks:
    """``th.join_many``; ``settings`` are complete, ``problems`` are raised too."""
    # 1. What is asked of all tasks.
    if len(streams) != 2:
        raise QueryError(
            "STREAM_COUNT", f"tasks share two streams, not {len(streams)} ({', '.join(streams)}); use th.join"
        )
    raise_problems([*problems, *_problems(streams, tasks, settings)])
    if model in (None, "auto"):
        spark = next(iter(streams.values())).sparkSession
        model = usual(int(spark.conf.get("spark.sql.shuffle.partitions") or "2"))
        reason = "left out: runs any condition, and routes by tuples alone"
    else:
        reason = "as asked for, for all tasks"
    if isinstance(model, Model) and not next(iter(streams.values())).isStreaming:
        model = model.on_batch
    refused = model_problem(model)
    if refused is not None:
        raise refused
    # 2. Each task, as a join of its own.
    plans: dict[str, JoinPlan] = {}
    wrong: dict[str, list[ThetastreamError]] = {}
    for name, task in tasks.items():
        own = {key: task[key] for key in OF_A_TASK[2:] if key in task}
        try:
            plan = plan_binary(streams, task["on"], task.get("within"), model, {**settings, **own})
        except ThetastreamError as error:
            wrong[name] = list(problems_of(error))
            continue
        plans[name] = replace(plan, model_reason=reason)
    raise_problems(_named(wrong, len(tasks)))
    # 3. What they share.
    return JoinTasks(plans, share({name: plan.physical for name, plan in plans.items()}))


def model_problem(model: object) -> QueryError | None:
    """Why a model cannot run several tasks; None if it can, or is none."""
    if not isinstance(model, Model):
        return None
    if model.needs_places:
        why = "routes by what one condition compares"
    elif isinstance(model, Multiway) or not model.is_prompt(2):
        why = "runs one join, hop by hop or by letters"
    else:
        return None
    return QueryError(
        "TASKS_MODEL",
        f"tasks need a model that routes by tuples alone, and {model!r} {why}; "
        "use th.Biclique(units), th.Matrix(rows, columns) or th.Split(cores), or leave model out",
    )


def _problems(
    streams: Mapping[str, DataFrame], tasks: object, settings: Mapping[str, Any]
) -> Iterator[QueryError]:
    """What is wrong before any condition is read."""
    if not isinstance(tasks, Mapping) or not tasks:
        yield QueryError(
            "TASKS", f'tasks must map names to what they join, {{"near": {{"on": ...}}}}, not {tasks!r}'
        )
        return
    if TASK in map(str.casefold, streams):
        yield QueryError("INVALID_ALIAS", f"results have a column {TASK!r}; name the stream otherwise")
    if settings["order"] is not None:
        yield QueryError(
            "ORDER", "results of several tasks have no one order; leave order out, or use th.join"
        )
    for name, task in tasks.items():
        if not isinstance(name, str) or not name:
            yield QueryError("TASKS", f"a task's name must be text, not {name!r}")
        elif not isinstance(task, Mapping) or "on" not in task:
            yield QueryError("TASKS", f'task {name!r} must be a mapping with "on", not {task!r}')
        else:
            yield from _task_problems(name, task)


def _task_problems(name: str, task: Mapping[str, Any]) -> Iterator[QueryError]:
    for key in task:
        if key not in OF_A_TASK:
            what = f"task {name!r} sets {key!r}, and a task has {', '.join(OF_A_TASK)}"
            yield QueryError("UNKNOWN_SETTING", f"{what}; other settings are of all tasks")
    if is_counted(task.get("within")):
        what = f"task {name!r} counts tuples, and streams that several tasks filter have no one count"
        yield QueryError("COUNT_WINDOW", f"{what}; use a time window, or th.join for this task alone")


def _named(wrong: Mapping[str, list[ThetastreamError]], n_tasks: int) -> list[ThetastreamError]:
    """Problems with the task they are of; those of all tasks once."""
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
