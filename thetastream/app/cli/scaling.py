"""The commands that show and change the units of a running join and what it sheds. They start no Spark."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from thetastream.app.cli.shared_arguments import AddCommand, add_checkpoint, add_policy, tell_request
from thetastream.app.job.document import find_checkpoint
from thetastream.joins.handle import ControlHandle, control
from thetastream.models import REGISTRY
from thetastream.runtime.control.policies import make_policy

SIZES = tuple(dict.fromkeys(name for model in REGISTRY.values() for name in model.sizes))
"""The sizes that some model may change while it runs."""
CAPACITIES = "capacities"
"""The size that has a number for each unit, which need not be whole."""


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "scale",
        scale,
        "change the units of a running join that was started with max_units",
        description="The change takes effect in the second epoch from now. Nothing restarts.",
        epilog="examples:\n  thetastream scale job.toml --units 4,2"
        "\n  thetastream scale checkpoint --model split --cores 4",
    )
    _add_join_arguments(parser)
    parser.add_argument("--model", choices=sorted(REGISTRY), help="the new model (default: no change)")
    for size in SIZES:
        parser.add_argument(
            f"--{size}",
            type=read_numbers if size == CAPACITIES else read_size,
            metavar="N[,N]",
            help=f"the new number of {size} of the model",
        )

    parser = add(
        "follow",
        follow,
        "let a running join that was started with max_units follow a policy, which changes its units",
        description="The query itself follows the policy, and its checkpoint remembers it.",
        epilog='example:\n  thetastream follow job.toml --set capacity="1.5 GB" --set agree=2'
        "\n  thetastream follow checkpoint --stop",
    )
    _add_join_arguments(parser)
    add_policy(parser)
    parser.add_argument("--stop", action="store_true", help="follow no policy any more")

    parser = add(
        "shed",
        shed,
        "let the load shedder of a running join drop at least a share of its tuples",
        description="The join must have been started with a load shedder and max_units.",
        epilog="example:\n  thetastream shed job.toml 0.3",
    )
    _add_join_arguments(parser)
    parser.add_argument("share", type=float, metavar="SHARE", help="from 0 to 1; 0 leaves it to the load")

    parser = add(
        "status",
        status,
        "show the units of a running join that was started with max_units",
        epilog="example:\n  thetastream status job.toml",
    )
    _add_join_arguments(parser)


def _add_join_arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    parser.add_argument("--join", help="the name of the join, if the query has several")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def scale(arguments: argparse.Namespace) -> int:
    """Ask a running join for other units, and print the name of the request."""
    sizes = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name) is not None}
    model = None if arguments.model is None else REGISTRY[arguments.model]()
    return tell_request(arguments, _open(arguments).scale(model, **sizes))


def follow(arguments: argparse.Namespace) -> int:
    """Ask a running join to follow a policy, and print the name of the request."""
    policy = None if arguments.stop else make_policy(arguments.policy, dict(arguments.set))
    return tell_request(arguments, _open(arguments).follow(policy))


def shed(arguments: argparse.Namespace) -> int:
    """Ask the load shedder of a running join to drop a share, and print the name of the request."""
    return tell_request(arguments, _open(arguments).shed(arguments.share))


def _open(arguments: argparse.Namespace) -> ControlHandle:
    return control(find_checkpoint(arguments.checkpoint), arguments.join)


def status(arguments: argparse.Namespace) -> int:
    """Print the plan of a running join."""
    found = _open(arguments).status()
    print(json.dumps(found) if arguments.json else describe_status(found))
    return 0


def describe_status(status: Mapping[str, Any]) -> str:
    """Describe the plan of a join as text.

    >>> generation = {"model": "Split(cores=2)", "units": [0, 1], "since": 0}
    >>> generation |= {"leaving": [], "moving": [], "drained": []}
    >>> plan = {"version": 0, "max_units": 4, "shed_factor": 0.0, "policy": None, "coming": None}
    >>> plan |= {"generations": [generation], "tasks": None}
    >>> print(describe_status({**plan, "requests": {}}))
    version       0
    max_units     4
    generation    Split(cores=2) on units 0, 1 since epoch 0
    >>> generation |= {"leaving": [0, 1], "moving": [1], "drained": [0]}
    >>> for line in describe_status({**plan, "requests": {}}).splitlines()[2].split("; "):
    ...     print(line)
    generation    Split(cores=2) on units 0, 1 since epoch 0
    units 0, 1 get no new tuples, tuples of unit 1 move to the newest units, and no tuples are left on unit 0
    >>> plan["coming"] = {"model": "Split(cores=1)", "units": [2], "since": None, "waits_for": [0, 1]}
    >>> print(describe_status({**plan, "requests": {}}).splitlines()[-1])
    coming        Split(cores=1) on unit 2 takes over later; it waits for units 0, 1
    >>> plan["tasks"] = {"near": {"since": 0, "on": None}, "wide": {"since": None, "on": "a.x < b.x"}}
    >>> for line in describe_status({**plan, "requests": {}}).splitlines()[2:4]:
    ...     print(line)
    task          near since epoch 0
    task          wide since the next epoch: a.x < b.x
    """
    lines = [("version", str(status["version"])), ("max_units", str(status["max_units"]))]
    if status["shed_factor"]:
        lines.append(("shed", f"{status['shed_factor']:.0%} of arriving tuples"))
    if status["policy"]:
        settings = [f"{name}={value}" for name, value in status["policy"].items() if name != "name"]
        lines.append(("policy", " ".join([status["policy"]["name"], *settings])))
    for name, task in (status["tasks"] or {}).items():
        text = f"{name} since {_name_epoch(task['since'])}"
        lines.append(("task", text if task["on"] is None else f"{text}: {task['on']}"))
    for one in status["generations"]:
        text = f"{one['model']} on {_name_units(one['units'])} since {_name_epoch(one['since'])}"
        if one["leaving"]:
            text += f"; {_name_units(one['leaving'])} get no new tuples"
        if one["moving"]:
            text += f", tuples of {_name_units(one['moving'])} move to the newest units"
        if one["drained"]:
            text += f", and no tuples are left on {_name_units(one['drained'])}"
        lines.append(("generation", text))
    coming = status["coming"]
    if coming is not None:
        text = f"{coming['model']} on {_name_units(coming['units'])} takes over later"
        if coming["waits_for"]:
            text += f"; it waits for {_name_units(coming['waits_for'])}"
        lines.append(("coming", text))
    lines += [("request", f"{name}: {outcome}") for name, outcome in status["requests"].items()]
    return "\n".join(f"{name:<14}{text}" for name, text in lines)


def _name_epoch(epoch: int | None) -> str:
    return "the next epoch" if epoch is None else f"epoch {epoch}"


def _name_units(numbers: list[int]) -> str:
    return f"unit{'s' if len(numbers) != 1 else ''} {', '.join(map(str, numbers))}"


def read_size(text: str) -> int | tuple[int | tuple[int, ...], ...]:
    """Read a size: a number, or numbers with a comma between them. Subgroups have a plus between them.

    >>> read_size("3"), read_size("4,2"), read_size("5+3,4")
    (3, (4, 2), ((5, 3), 4))
    """
    try:
        sizes = tuple(tuple(map(int, part.split("+"))) for part in text.split(","))
    except ValueError as error:
        what = f"must be a number, or numbers with commas between them, not {text!r}"
        raise argparse.ArgumentTypeError(what) from error
    sides = tuple(size[0] if len(size) == 1 else size for size in sizes)
    return sides[0] if len(sides) == 1 and isinstance(sides[0], int) else sides


def read_numbers(text: str) -> tuple[float, ...]:
    """Read numbers with commas between them, which need not be whole.

    >>> read_numbers("3,1,0.5")
    (3, 1, 0.5)
    """
    try:
        return tuple(int(part) if part.isdecimal() else float(part) for part in text.split(","))
    except ValueError as error:
        what = f"must be numbers with commas between them, not {text!r}"
        raise argparse.ArgumentTypeError(what) from error
