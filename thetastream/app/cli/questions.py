"""The command that asks a store of results one question in SQL, without Spark."""

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import Any

import pyarrow as pa

from thetastream.app.cli.serving import STORE_HELP
from thetastream.app.cli.shared_arguments import AddCommand, add_row_output
from thetastream.core.plain_text import show_controls
from thetastream.results.question import query
from thetastream.stores import read_store

EVERYTHING = "SELECT * FROM results"


def add_query(add: AddCommand) -> None:
    """Add this command to the command line."""
    parser = add(
        "query",
        ask_store,
        "ask a store of results in SQL, without Spark",
        description="Run one SELECT over the table results, also while a query writes into the store. It "
        "needs pip install 'thetastream[query]'.",
        epilog="examples:\n  thetastream query out/pairs"
        "\n  thetastream query out/pairs 'SELECT symbol, count(*) AS n FROM results GROUP BY symbol'",
    )
    parser.add_argument("store", metavar="STORE", help=STORE_HELP)
    parser.add_argument(
        "question", nargs="?", default=EVERYTHING, metavar="SQL", help="one SELECT (default: %(default)s)"
    )
    parser.add_argument(
        "--snapshot",
        metavar="SNAPSHOT",
        help="the results up to this snapshot: its number, or a time as in '2026-01-05 09:31:30'",
    )
    add_row_output(parser)


def ask_store(arguments: argparse.Namespace) -> int:
    """Ask a store, and print the rows of the answer."""
    given = arguments.snapshot
    snapshot = int(given) if given is not None and given.isdecimal() else given
    answer = query(read_store(arguments.store), arguments.question, snapshot)
    shown = answer.slice(0, arguments.limit)
    if arguments.json:
        for row in shown.to_pylist():
            print(json.dumps(row, default=_write_for_json))
        return 0
    for line in draw_table(shown.column_names, list_rows(shown)):
        print(line)
    if shown.num_rows < answer.num_rows:
        print(f"{answer.num_rows - shown.num_rows:,} more rows; --limit shows more")
    return 0


def list_rows(table: pa.Table) -> list[list[str]]:
    """Write the values of each row as text."""
    columns = [[_write(value) for value in column.to_pylist()] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def draw_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Draw rows of texts as Spark's ``show`` does. A text has one line, and controls no terminal.

    >>> print("\\n".join(draw_table(["id", "n"], [["1", "20"], ["NULL", "3"]])))
    +----+--+
    |id  |n |
    +----+--+
    |1   |20|
    |NULL|3 |
    +----+--+
    """
    names, *rows = [[show_controls(text, is_line=True) for text in row] for row in (names, *rows)]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    edge = "".join(f"+{'-' * width}" for width in widths) + "+"
    yield edge
    for number, row in enumerate([names, *rows]):
        yield "".join(f"|{text:<{width}}" for text, width in zip(row, widths, strict=True)) + "|"
        if number == 0:
            yield edge
    yield edge


def _write(value: Any) -> str:
    """Write a value for people."""
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        return "{" + ", ".join(map(_write, value.values())) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_write, value)) + "]"
    return value.hex() if isinstance(value, bytes) else str(value)


def _write_for_json(value: Any) -> str:
    """Write a value of a type that JSON does not have."""
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    return value.hex() if isinstance(value, bytes) else str(value)
