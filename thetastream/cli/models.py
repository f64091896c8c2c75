"""The command that lists the models."""

import argparse
import json

from thetastream.cli.shared_arguments import AddCommand
from thetastream.models import REGISTRY


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add("models", list_models, "list the models")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def list_models(arguments: argparse.Namespace) -> int:
    """Print the models."""
    for name, model in REGISTRY.items():
        line = (model.__doc__ or "").splitlines()[0]
        print(json.dumps({"model": name, "what": line}) if arguments.json else f"{name:<10} {line}")
    return 0
