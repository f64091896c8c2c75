"""Reads the tables ``[tasks.NAME]`` of ``job.toml``, the joins of ``th.join_many``, and lists their errors.

[tasks.NAME]   on, within, index, archive_period

The aliases of the joins are the names of the two sources. ``sql`` selects FROM tasks: the column ``task``,
one struct column for each source, and ``result_time``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from thetastream.app.job.names import Names, Scope
from thetastream.app.job.spec import SourceSpec, check_keys, find_span_problems, get_table
from thetastream.conditions import make_error_at, tokenize
from thetastream.conditions.statement import Statement, list_selects
from thetastream.core.errors import QueryError, ThetastreamError, list_problems
from thetastream.families.options import TaskOptions, list_options

TASKS = "tasks"
"""The table of join tasks, and the name of their results in FROM."""
KEYS = {"on": object, "within": object, "index": object, "archive_period": str}
"""The keys of a task, and the types of their values."""


def parse_tasks(
    found: Mapping[str, Any],
    sources: Mapping[str, SourceSpec],
    columns: Scope,
    get_problems: Callable[[str], list[ThetastreamError]],
) -> dict[str, Mapping[str, Any]]:
    """Read the join tasks of a job, and add their errors to those of the sections of the file.

    Parameters
    ----------
    found : mapping
        The whole file.
    sources : mapping of name in lower case to SourceSpec
    columns : mapping of name in lower case to columns
        The declared columns of the sources.
    get_problems : callable
        Returns the list of the errors of a section.
    """
    tasks = get_table(found, TASKS)
    if not tasks:
        return {}
    get_problems(f"{TASKS}.{next(iter(tasks))}").extend(_find_other_problems(found, sources))
    scope = {source.name: columns.get(name) for name, source in sources.items()}
    for name, task in tasks.items():
        problems = get_problems(f"{TASKS}.{name}")
        if not isinstance(task, dict):
            problems.append(QueryError("BAD_VALUE", f"task {name!r} must be a table, [{TASKS}.{name}]"))
            continue
        check_keys(task, KEYS, f"task {name!r}", problems)
        if "on" not in task:
            problems.append(QueryError("MISSING_KEY", f"task {name!r} must have 'on'"))
        problems += _find_value_problems(name, task, sources)
        problems += _find_name_problems(task.get("on"), scope)
    return {name: task for name, task in tasks.items() if isinstance(task, dict)}


def _find_other_problems(
    found: Mapping[str, Any], sources: Mapping[str, SourceSpec]
) -> Iterator[ThetastreamError]:
    """Yield an error for each other part of the file that a job with tasks cannot have."""
    names = [source.name for source in sources.values()]
    if len(names) != 2:
        what = f"tasks share two sources, not {len(names)} ({', '.join(names) or 'none'})"
        yield QueryError("STREAM_COUNT", f"{what}; a stream that joins itself is two sources")
    if TASKS in sources:
        yield QueryError("BAD_VALUE", f"a source cannot have the name {TASKS!r}, which sql gives the results")
    for key, why in (("tables", "join two streams, and no tables"), ("shed", "have no load shedder")):
        if get_table(found, key):
            yield QueryError("TASKS", f"join tasks {why}; leave [{key}] out, or write the join in sql")


def _find_value_problems(
    name: str, task: Mapping[str, Any], sources: Mapping[str, SourceSpec]
) -> Iterator[ThetastreamError]:
    """Yield an error for each value of a task that is wrong whatever the sources are."""
    within = task.get("within")
    for span in within.values() if isinstance(within, dict) else (within,):
        yield from find_span_problems(span, f"within of task {name!r}")
    yield from find_span_problems(task.get("archive_period"), f"archive_period of task {name!r}")
    if "index" in task:
        try:
            list_options(TaskOptions)["index"].read(task["index"], f"index of task {name!r}")
        except ThetastreamError as problem:
            yield problem
    for source in sources.values() if within is not None else ():
        if source.event_time is None:
            what = f"within of task {name!r} needs the event time of source {source.name!r}"
            hint = f"write event_time, or by_arrival, in [sources.{source.name}]"
            yield QueryError("NO_WATERMARK", f"{what}; {hint}")


def _find_name_problems(on: object, scope: Scope) -> Iterator[ThetastreamError]:
    """Yield an error for each name in a condition that is no column of the sources."""
    for text in on if isinstance(on, list) else [on]:
        if not isinstance(text, str):
            continue
        try:
            phrase = tokenize(text)
        except ThetastreamError as error:
            yield from list_problems(error)
        else:
            yield from Names(text, scope, ()).check(phrase, ())


def find_join_problems(script: Sequence[Statement]) -> Iterator[QueryError]:
    """Yield an error for each join, and each clause OPTIONS, in the statements of a job with tasks."""
    for statement in script:
        if statement.options:
            what = f"{next(iter(statement.options))} is in the clause OPTIONS, and sql has no join"
            yield QueryError("TASKS", f"{what}; write it into [options], which is for all tasks")
    for select in (each for statement in script for each in list_selects(statement.select)):
        for source in select.sources[1:2]:
            what = f"a job with [{TASKS}] has its joins there, and its sql selects FROM {TASKS} alone"
            yield make_error_at(select.text, source.start, f"{what}; leave this join out", "TASKS")
