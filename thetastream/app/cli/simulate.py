"""The command that simulates a scaling policy under a load curve, or shows what limits a join."""

import argparse
import json
from pathlib import Path

from thetastream.app.cli.shared_arguments import AddCommand, add_policy
from thetastream.core.errors import QueryError
from thetastream.families.pairs.choose import list_comparable
from thetastream.index import REGISTRY as SHAPES
from thetastream.runtime.control.policies import make_policy
from thetastream.simulator.drawing import draw_limits, draw_replay, plot_replay
from thetastream.simulator.limits import Cluster, find_limit
from thetastream.simulator.scaling import BISTREAM, LoadCurve, Setting, read_curve, replay

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
"""The numbers of units whose limits are shown."""


def add_commands(add: AddCommand) -> None:
    """Add these commands to the command line."""
    parser = add(
        "simulate",
        simulate,
        "replay a load curve under a scaling policy, or show what limits a join",
        epilog="examples:\n  thetastream simulate --set agree=5 --plot scaling.svg"
        "\n  thetastream simulate --limits --index hash_sorted",
    )
    parser.add_argument(
        "--limits",
        action="store_true",
        help="show which resource of a cluster limits a join of 1 to 1,000 units; no policy is replayed",
    )
    parser.add_argument(
        "--curve",
        type=Path,
        metavar="FILE.csv",
        help="a load curve: minutes and tuples per second (default: a curve as in BiStream's figure 12)",
    )
    add_policy(parser)
    parser.add_argument(
        "--units",
        type=_read_units,
        default=(4, 4),
        metavar="M,N",
        help="the units of the two sides at the beginning (default 4,4)",
    )
    parser.add_argument(
        "--model",
        choices=list_comparable(),
        default="biclique",
        help="the model whose limits are shown (default %(default)s)",
    )
    default = Setting()
    for name, what in (
        ("window-s", "the window in seconds"),
        ("stored-bytes", "bytes of a stored tuple with its share of the index"),
        ("sent-bytes", "bytes of a tuple in the exchange"),
        ("candidates", "stored tuples that the index offers to a probe"),
        ("results", "results that a tuple finds when it arrives"),
    ):
        value = getattr(default, name.replace("-", "_"))
        parser.add_argument(
            f"--{name}", type=_read_amount, default=value, metavar="N", help=f"{what} (default {value:g})"
        )
    parser.add_argument(
        "--index", choices=sorted(SHAPES), default=default.index, help="the index shape (default %(default)s)"
    )
    parser.add_argument(
        "--epoch-s",
        type=_read_amount,
        default=10.0,
        metavar="N",
        help="the seconds of an epoch (default %(default)g)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.svg", help="draw the replay (svg, png, pdf; needs matplotlib)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def simulate(arguments: argparse.Namespace) -> int:
    """Print the replay of a policy, or the limits of a join."""
    setting = Setting(
        arguments.window_s,
        arguments.stored_bytes,
        arguments.sent_bytes,
        arguments.index,
        arguments.candidates,
        arguments.results,
    )
    return _show_limits(arguments, setting) if arguments.limits else _show_replay(arguments, setting)


def _show_limits(arguments: argparse.Namespace, setting: Setting) -> int:
    cluster = Cluster(epoch_s=arguments.epoch_s)
    found = [find_limit(arguments.model, n_units, setting, cluster) for n_units in SIZES]
    limits = [limit for limit in found if limit is not None]
    if arguments.json:
        for limit in limits:
            uses = {resource.name: round(use, 4) for resource, use in limit.uses.items()}
            one = {"units": limit.n_units, "model": repr(limit.model), "tuples_per_s": round(limit.rate)}
            parts = {part.name: round(use, 4) for part, use in limit.parts.items()}
            change = {"binds_first": limit.resource.name, "advice": limit.advice}
            print(json.dumps({**one, **change, "uses": uses, "core_parts": parts}))
        return 0
    print(*draw_limits(limits), sep="\n")
    return 0


def _show_replay(arguments: argparse.Namespace, setting: Setting) -> int:
    curve = BISTREAM if arguments.curve is None else _read_file(arguments.curve)
    policy = make_policy(arguments.policy, dict(arguments.set))
    steps = list(replay(policy, curve, setting, arguments.units, arguments.epoch_s))
    if arguments.plot is not None:
        plot_replay(steps, arguments.plot)
    if arguments.json:
        for step in steps:
            print(json.dumps(step._asdict()))
        return 0
    print(*draw_replay(steps), sep="\n")
    return 0


def _read_file(path: Path) -> LoadCurve:
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise QueryError("LOAD_CURVE", f"the load curve {path} cannot be read: {error}") from error
    return read_curve(text)


def _read_units(text: str) -> tuple[int, int]:
    left, comma, right = text.partition(",")
    if not comma or not left.isdecimal() or not right.isdecimal() or not int(left) * int(right):
        raise argparse.ArgumentTypeError(f"must be two positive integers, as in 4,4, not {text!r}")
    return int(left), int(right)


def _read_amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"must be a positive number below 1e12, not {text!r}")
    return value
