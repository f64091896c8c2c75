"""The commands that control a running join; they start no Spark."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from thetastream.models import REGISTRY
from thetastream.spark.control.handle import control

SIZES = tuple(dict.fromkeys(name for model in REGISTRY.values() for name in model.sizes))
"""The sizes that some model may change while it runs."""


def scale(arguments: argparse.Namespace) -> int:
    """Ask a running join for other units, and print the name of the request."""
    sizes = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name) is not None}
    handle = control(arguments.checkpoint, arguments.join)
    name = handle.scale(None if arguments.model is None else REGISTRY[arguments.model](), **sizes)
    print(json.dumps({"request": name}) if arguments.json else f"request {name} is put")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Print the plan of a running join."""
    found = control(arguments.checkpoint, arguments.join).status()
    print(json.dumps(found) if arguments.json else describe_status(found))
    return 0


def describe_status(status: Mapping[str, Any]) -> str:
    """Describe the plan of a join as text.

    >>> generation = {"model": "Split(cores=2)", "units": [0, 1], "since": 0, "leaving": [], "drained": []}
    >>> plan = {"version": 0, "max_units": 4, "shed_factor": 0.0, "generations": [generation], "requests": {}}
    >>> print(describe_status(plan))
    version       0
    max_units     4
    generation    Split(cores=2) on units 0, 1 since epoch 0
    """
    lines = [("version", str(status["version"])), ("max_units", str(status["max_units"]))]
    if status["shed_factor"]:
        lines.append(("shed", f"{status['shed_factor']:.0%} of arriving tuples"))
    for one in status["generations"]:
        since = "the next epoch" if one["since"] is None else f"epoch {one['since']}"
        text = f"{one['model']} on units {_list(one['units'])} since {since}"
        if one["leaving"]:
            text += f"; {_list(one['leaving'])} store no new tuples"
        if one["drained"]:
            text += f", and {_list(one['drained'])} hold none"
        lines.append(("generation", text))
    lines += [("request", f"{name}: {outcome}") for name, outcome in status["requests"].items()]
    return "\n".join(f"{name:<14}{text}" for name, text in lines)


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def read_size(text: str) -> int | tuple[int, ...]:
    """Read a size: a number, or numbers with a comma between them.

    >>> read_size("3"), read_size("4,2")
    (3, (4, 2))
    """
    numbers = tuple(map(int, text.split(",")))
    return numbers[0] if len(numbers) == 1 else numbers
