"""The commands that add join tasks to a running query and remove them.

Only a task with a new condition needs Spark, which reads the condition over the streams of a job.
"""

import argparse
from pathlib import Path

from thetastream.app.cli.shared_arguments import AddCommand, open_session, tell_request
from thetastream.app.job.document import find_checkpoint, is_job, read_job
from thetastream.app.job.frames import plan_tasks
from thetastream.core.errors import QueryError
from thetastream.engine.running_tasks import RunningTask
from thetastream.index import REGISTRY as SHAPES
from thetastream.joins.handle import control
from thetastream.joins.tasks import TASK_SETTINGS
from thetastream.runtime.control.request import Request


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "add-task",
        add_task,
        "add a join task to a running query that was started with max_tasks",
        description="The task begins in the second epoch from now, with nothing stored. Nothing restarts. "
        "Without --on, a task of the job that was removed begins again.",
        epilog='examples:\n  thetastream add-task job.toml wide --on "abs(a.x - b.x) <= 3" --within "1 m"'
        "\n  thetastream add-task job.toml near",
    )
    _add_query(parser)
    parser.add_argument("--on", metavar="CONDITION", help="the condition, over the sources of the job")
    parser.add_argument("--within", metavar="SPAN", help='the window, as in --within "1 minute"')
    parser.add_argument("--index", choices=[*SHAPES], help="the index shape (default: chosen)")
    parser.add_argument("--archive-period", metavar="SPAN", help="the event time that one subindex spans")

    parser = add(
        "remove-task",
        remove_task,
        "remove a join task from a running query that was started with max_tasks",
        description="The next epoch is the last one of the task. Then its stored tuples are dropped.",
        epilog="example:\n  thetastream remove-task job.toml wide",
    )
    _add_query(parser)


def _add_query(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("query", metavar="JOB|CHECKPOINT", help="a job file, or the checkpoint of a query")
    parser.add_argument("task", metavar="TASK", help="the name of the task")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_task(arguments: argparse.Namespace) -> int:
    """Ask a running query for one more task, and print the name of the request."""
    task = {name: given for name in TASK_SETTINGS if (given := getattr(arguments, name)) is not None}
    if not task:
        return _put(arguments, Request(add=RunningTask(arguments.task)))
    if not is_job(arguments.query):
        what = f"a condition is about the streams of a job file, and {arguments.query} is a checkpoint"
        hint = "name the job, or call joined.add(query, ...) of th.join_many in Python"
        raise QueryError("TASKS", f"{what}; {hint}")
    job = read_job(Path(arguments.query))
    if not job.tasks:
        what = f"{arguments.query} must have [tasks], because tasks are added to those of a running query"
        raise QueryError("TASKS", what)
    if job.options.get("max_tasks") is None:
        what = "tasks can be added only to a query that was started with max_tasks"
        hint = f"write max_tasks under [options] of {arguments.query}, and start the job again"
        raise QueryError("TASKS", f"{what}; {hint}")
    with open_session(job.spark) as spark:
        return tell_request(arguments, plan_tasks(spark, job).add(job.checkpoint, arguments.task, **task))


def remove_task(arguments: argparse.Namespace) -> int:
    """Ask a running query to end a task, and print the name of the request."""
    return _put(arguments, Request(remove=arguments.task))


def _put(arguments: argparse.Namespace, request: Request) -> int:
    return tell_request(arguments, control(find_checkpoint(arguments.query)).request(request))
