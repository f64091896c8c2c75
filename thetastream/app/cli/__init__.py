"""The command line: ``thetastream run job.toml``, ``thetastream sql "..."``, and the other commands.

The exit code is 0 if the command is done or was stopped on request, 1 if it failed, 2 if the arguments are
wrong, and 130 if it was interrupted before anything ran.

The parser of the command line. Each group of commands adds its own commands to it.
"""

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence

from thetastream.app.cli import (
    checkpoints,
    demo,
    errors,
    jobs,
    questions,
    scaling,
    serving,
    simulate,
    small,
    statements,
    tasks,
)
from thetastream.app.cli.shared_arguments import Run
from thetastream.core.errors import ThetastreamError
from thetastream.core.plain_text import show_controls
from thetastream.core.version import VERSION

GROUPS = (
    jobs.add_commands,
    checkpoints.add_commands,
    scaling.add_commands,
    tasks.add_commands,
    statements.add_commands,
    serving.add_serve,
    questions.add_query,
    serving.add_verify,
    serving.add_upkeep,
    simulate.add_commands,
    errors.add_commands,
    small.add_models,
    small.add_completion,
    small.add_prepare,
    demo.add_demo,
)
"""The functions that add commands, in the order in which help lists the commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Without arguments, print the help."""
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except ThetastreamError as error:
        print(show_controls("\n".join([f"thetastream: {error}", *error.__notes__])), file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the pipe has closed it, as ``| head`` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line. Each command names the function that runs it."""
    parser = argparse.ArgumentParser(
        prog="thetastream", description="Joins on any condition between unbounded streams, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"thetastream {VERSION}")
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

    for add_commands in GROUPS:
        add_commands(add)
    return parser
