"""The command that prints a script for completion in a shell."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from thetastream.cli.shared_arguments import AddCommand
from thetastream.errors import ThetastreamError


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "completion",
        print_completion,
        "print a script that completes commands and options in a shell",
        epilog='examples:\n  eval "$(thetastream completion bash)"'
        "\n  thetastream completion fish > ~/.config/fish/completions/thetastream.fish",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))


def print_completion(arguments: argparse.Namespace) -> int:
    """Print a script that completes commands and options in a shell."""
    try:
        import shtab  # an optional package
    except ModuleNotFoundError as error:
        hint = "shtab is needed and missing: pip install 'thetastream[completion]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
    for action in _find_path_arguments(arguments.parser):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(arguments.parser, arguments.shell))
    return 0


def _find_path_arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.type is Path:
            yield action
        elif isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _find_path_arguments(command)
