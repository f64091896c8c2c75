"""The command line: ``thetastream run job.toml``, ``thetastream sql "..."``, and the other commands.

The exit code is 0 if the command is done or was stopped on request, 1 if it failed, 2 if the arguments are
wrong, and 130 if it was interrupted before anything ran.
"""

import os
import sys
from collections.abc import Sequence

from thetastream.cli.arguments import build_parser
from thetastream.errors import ThetastreamError


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
        print(f"thetastream: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader of the pipe has closed it, as ``| head`` does.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
