"""The command that reads a whole store and lists all that is damaged; it starts no Spark."""

import argparse
import json
from dataclasses import asdict

from thetastream.app.cli.serving import STORE_HELP
from thetastream.app.cli.shared_arguments import AddCommand
from thetastream.stores import read_store


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "verify",
        verify,
        "read a store of results and list all that is damaged, without Spark",
        description="Read everything that the commits of a store name, and compare it with what they say. "
        "Nothing is changed. The exit code is 1 if something is damaged.",
        epilog="examples:\n  thetastream verify out/pairs\n  thetastream verify delta:s3://bucket/pairs"
        "\n  thetastream verify 'postgresql:///results?table=pairs'",
    )
    parser.add_argument("store", metavar="STORE", help=STORE_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def verify(arguments: argparse.Namespace) -> int:
    """Print what a store has, and all that is damaged."""
    found = read_store(arguments.store).verify()
    if arguments.json:
        print(json.dumps(asdict(found)))
    else:
        print(f"entries    {found.entries}")
        print(f"snapshots  {found.snapshots}")
        print(f"parts      {found.parts}")
        print(f"rows       {found.rows:,}")
        print(f"damages    {len(found.problems)}")
        for problem in found.problems:
            print(f"- {problem}")
    return 0 if found.is_intact else 1
