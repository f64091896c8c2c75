"""Prints a report, and writes it and its figures to the files that the command line names."""

import argparse
import json
from typing import Any

from bench.core.columns import columns, write_table
from bench.core.machine import describe
from bench.core.page import describe_machine
from bench.core.rows import Row


def publish(text: str, found: dict[str, Any], asked: argparse.Namespace) -> None:
    """Print the report; write it with ``--markdown``, and the figures ``found`` with ``--json``."""
    print(text)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    if asked.markdown:
        asked.markdown.write_text(text.rstrip() + "\n")


def publish_table(head: str, shown: str, rows: list[Row], asked: argparse.Namespace) -> int:
    """Publish rows as a table under ``head`` and the machine; return 1 if a row is not correct, else 0."""
    machine = describe()
    table = write_table(columns(shown), rows)
    publish(
        "\n".join([head, f"{describe_machine(machine)}.\n", *table]),
        {"rows": rows, "machine": machine},
        asked,
    )
    return 0 if all(row["is_correct"] for row in rows) else 1
