"""The command that runs an SQL statement over files."""

import argparse
import json
from pathlib import Path
from typing import Any

from thetastream.app.cli.shared_arguments import AddCommand, add_row_output, open_session, read_pair
from thetastream.app.job.document import find_unknown_sources
from thetastream.app.job.files import find_path_problems, read_file
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Insert
from thetastream.core.errors import raise_problems
from thetastream.statements import insert, sql


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "sql",
        run_sql,
        "run a statement over files and print its rows",
        epilog="example:\n  thetastream sql 'SELECT ONLINE r.id, s.id AS o FROM r, s WHERE r.x > s.y' \\\n"
        "      --source r=r.parquet --source s=folder/",
    )
    parser.add_argument("statement", metavar="SQL", help="one statement, or views and a statement at the end")
    parser.add_argument(
        "--source",
        action="append",
        type=read_pair,
        default=[],
        metavar="NAME=PATH",
        help="a file, or a folder of files, that the statement reads under this name",
    )
    parser.add_argument(
        "--event-time",
        action="append",
        type=read_pair,
        default=[],
        metavar="NAME=COLUMN",
        help="the event time of an alias; WITHIN needs this option if the alias has several timestamps",
    )
    add_row_output(parser)


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
