"""The command ``thetastream error NAME``, which prints what the page about errors says of an error."""

import argparse
import re
from importlib.resources import files
from pathlib import Path
from textwrap import indent

from thetastream.app.cli.shared_arguments import AddCommand
from thetastream.core.errors import QueryError, ThetastreamError, suggest

IN_REPOSITORY = Path(__file__).parents[3] / "docs/reference/errors.md"
"""The page as the repository has it. A wheel, also one that is not unpacked, has it as ``errors.md``."""
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


def add_commands(add: AddCommand) -> None:
    """Add this command to the command line."""
    parser = add(
        "error",
        print_errors,
        "say what an error means, show an example, and say what to do",
        epilog="example:\n  thetastream error UNDECIDED",
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="the name in brackets before a message (default: list all)"
    )


def print_errors(arguments: argparse.Namespace) -> int:
    """Print the sections of the named errors, or the names of all errors."""
    sections = read_sections()
    unknown = [name for name in arguments.names if name.upper() not in sections]
    if unknown:
        hint = suggest(unknown[0].upper(), sections) or "; thetastream error lists all"
        raise QueryError("BAD_VALUE", f"NAME must be the name of an error, not {unknown[0]!r}{hint}")
    print("\n\n".join(sections[name.upper()] for name in arguments.names) or "\n".join(sections))
    return 0


def read_sections() -> dict[str, str]:
    """Read the section of each error as plain text, by name.

    Raises
    ------
    ThetastreamError
        MISSING_PACKAGE if a copy of the package has no page.

    Examples
    --------
    >>> print(read_sections()["BAD_BLOCK"].splitlines()[0])
    BAD_BLOCK (QueryError)
    """
    packaged = files("thetastream") / "errors.md"
    if not packaged.is_file() and not IN_REPOSITORY.is_file():
        what = "this copy of the package has no page about errors"
        raise ThetastreamError("MISSING_PACKAGE", f"{what}; install its wheel, or see the documentation")
    page = packaged.read_text() if packaged.is_file() else IN_REPOSITORY.read_text()
    sections = (one.strip() for one in page.partition("\n## By name\n")[2].split("\n### ")[1:])
    return {one.partition("\n")[0].strip("`"): _write_plain(one) for one in sections}


def _write_plain(section: str) -> str:
    """Write a section without the marks of Markdown."""
    name, _, text = section.partition("\n\n")
    classes, _, text = text.partition(". ")
    code = re.sub(r"```text\n(.*?)\n```", lambda found: indent(found[1], "    "), text, flags=re.DOTALL)
    plain = _LINK.sub(r"\1", code)
    return f"{name.strip('`')} ({classes.replace('`', '')})\n\n{plain}"
