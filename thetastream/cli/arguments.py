"""The parser of the command line. Each group of commands adds its own commands to it."""

import argparse
import textwrap
from importlib.metadata import version

from thetastream.cli import (
    checkpoints,
    completion,
    demo,
    jobs,
    models,
    prepare,
    scaling,
    serving,
    simulate,
    statements,
    verifying,
)
from thetastream.cli.shared_arguments import Run

GROUPS = (
    jobs,
    checkpoints,
    scaling,
    statements,
    serving,
    verifying,
    simulate,
    models,
    completion,
    prepare,
    demo,
)
"""The modules with the commands, in the order in which help lists them."""


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line. Each command names the function that runs it."""
    parser = argparse.ArgumentParser(
        prog="thetastream", description="Joins on any condition between unbounded streams, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"thetastream {version('thetastream')}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(
        name: str, run: Run, help: str, *, description: str | None = None, epilog: str | None = None
    ) -> argparse.ArgumentParser:
        made = subparsers.add_parser(
            name,
            help=help,
            # The formatter keeps the lines of examples, so lines of a description are broken here.
            description=None if description is None else textwrap.fill(description, 79),
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        made.set_defaults(run=run, parser=parser)
        return made

    for group in GROUPS:
        group.add_commands(add)
    return parser
