"""Changes of the join tasks of a query: a request adds a task or removes one.

    tasks of the plan, request  ->  the tasks of the next version, or a refusal that changes nothing

A version of the plan adds one task at most. So the version in which a task began tells it from any other,
also from an earlier one of its name.
"""

from collections.abc import Sequence

from thetastream.core.errors import QueryError
from thetastream.core.records import encode
from thetastream.core.sides import Side
from thetastream.engine.running_tasks import RunningTask
from thetastream.runtime.control.files import list_columns
from thetastream.runtime.control.plan import ControlPlan, TaskRules
from thetastream.runtime.control.request import Request


def list_running(plan: ControlPlan, names: Sequence[str]) -> tuple[RunningTask, ...]:
    """List the tasks that run by a plan, where ``names`` are those of the program."""
    return tuple(map(RunningTask, names)) if plan.tasks is None else plan.tasks


def change_tasks(
    plan: ControlPlan, request: Request, rules: TaskRules | None
) -> tuple[RunningTask, ...] | None:
    """Return the tasks that a request asks for; those of the plan if it names none.

    Raises
    ------
    QueryError
        TASKS if the request does not fit the tasks that run. MAX_TASKS if they would be too many.
        BAD_REQUEST if a task reads what routers do not send.
    """
    if request.add is None and request.remove is None:
        return plan.tasks
    if rules is None:
        what = "tasks can be added and removed only if the query was started with max_tasks"
        raise QueryError("TASKS", f"{what}; start it again from its checkpoint with max_tasks")
    running = before = list_running(plan, rules.names)
    if request.remove is not None:
        running = _remove(running, request.remove)
    if request.add is not None:
        running = _add(running, request.add._replace(since=plan.version + 1), rules)
    return plan.tasks if running == before else running


def find_endless(tasks: Sequence[RunningTask] | None, never_expires: tuple[bool, bool]) -> tuple[bool, bool]:
    """Find for each stream whether a task stores tuples that stay joinable for ever.

    ``never_expires`` says this of the tasks of the program.
    """
    joins = [task.join for task in tasks or () if task.join is not None]
    left, right = (never_expires[side] or any(join.never_expires[side] for join in joins) for side in Side)
    return left, right


def _remove(running: tuple[RunningTask, ...], name: str) -> tuple[RunningTask, ...]:
    kept = tuple(task for task in running if task.name != name)
    if len(kept) == len(running):
        raise QueryError("TASKS", f"no task {name!r} runs, only {_list_names(running)}")
    if not kept:
        what = f"the task {name!r} must go on, because a query has at least one task"
        raise QueryError("TASKS", f"{what}; stop the query, or add another task before")
    return kept


def _add(running: tuple[RunningTask, ...], task: RunningTask, rules: TaskRules) -> tuple[RunningTask, ...]:
    for one in running:
        if one.name == task.name and one.join == task.join:
            return running
        if one.name == task.name:
            what = f"a task {task.name!r} of another condition runs already"
            raise QueryError("TASKS", f"{what}; remove it before, or choose another name")
    if task.join is None and task.name not in rules.names:
        listed = ", ".join(map(repr, rules.names))
        raise QueryError("TASKS", f"the program has no task {task.name!r}, only {listed}; give on= to add it")
    if task.join is not None and task.name in rules.names:
        what = f"the name {task.name!r} is that of a task of the program"
        raise QueryError("TASKS", f"{what}: leave on= out to begin this task again, or choose another name")
    if len(running) >= rules.most:
        what = f"{len(running)} tasks run, and max_tasks={rules.most} allows no more"
        raise QueryError("MAX_TASKS", f"{what}; remove one before, or start with a larger max_tasks")
    if task.join is not None:
        for side, read in zip(Side, list_columns(encode(task.join)), strict=True):
            if task.join.sides[side].columns != rules.results[side]:
                raise QueryError("BAD_REQUEST", f"results of the task {task.name!r} have other columns")
            unknown = read - set(rules.columns[side])
            if unknown:
                what = f"the task {task.name!r} reads {', '.join(sorted(unknown))}"
                raise QueryError("BAD_REQUEST", f"{what}, which no block of this query has")
    return (*running, task)


def _list_names(running: Sequence[RunningTask]) -> str:
    return ", ".join(repr(task.name) for task in running)
