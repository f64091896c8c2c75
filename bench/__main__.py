"""``python -m bench handshake|equi|stock|inequality|aggregate|tpch-band``; exit code 1 on a wrong count.

``python -m bench figures``, ``python -m bench psp`` and ``python -m bench esj`` have options of their own:
``bench.figures``, ``bench.psp``, ``bench.esj``.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from bench import harness, rate, report, tpch
from bench.data import Shape
from bench.engines import COMPARED, ENGINES
from bench.task import Task
from bench.workloads import WORKLOADS

AGGREGATE = "aggregate"
"""The join of ``handshake`` twice: given out pair by pair, and folded into groups."""
SPARE_EPOCHS = 40
"""Files for a fast engine's ``--warmup-seconds``; what it does not read is not measured."""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workload", choices=[*WORKLOADS, AGGREGATE, "tpch-band"])
    parser.add_argument("--window", type=int, help="tuples per stream in the window")
    parser.add_argument("--epoch", type=int, help="tuples per stream and epoch")
    parser.add_argument("--epochs", type=int, default=8, help="measured epochs, after the warm-up")
    parser.add_argument("--warmup", type=int, help="epochs before, at least; default: the window and two")
    parser.add_argument("--warmup-seconds", type=float, default=60, help="seconds before, at least")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--engines", help="comma-separated")
    parser.add_argument("--rate", type=int, help="tuples/s of both streams together, in real time")
    parser.add_argument("--seconds", type=int, default=30, help="measured time of --rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver-memory", default="4g", help="Spark's, for both Spark engines")
    parser.add_argument("--option", action="append", default=[], metavar="ENGINE.NAME=VALUE")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds per run")
    parser.add_argument("--json", type=Path, help="write everything, runs included")
    parser.add_argument("--markdown", type=Path, help="write the table")
    parsed = parser.parse_args(arguments)
    engines = ("thetastream", AGGREGATE) if parsed.workload == AGGREGATE else COMPARED
    parsed.engines = parsed.engines.split(",") if parsed.engines else list(engines)
    if unknown := set(parsed.engines) - set(ENGINES):
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    return parsed


def engine_options(pairs: list[str], engine: str) -> dict[str, Any]:
    """Options of one engine; values are JSON where they parse as JSON.

    >>> engine_options(["spark.cell=40", "spark.provider=hdfs", "thetastream.m=2"], "spark")
    {'cell': 40, 'provider': 'hdfs'}
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        owner, _, key = name.partition(".")
        if owner == engine:
            try:
                options[key] = json.loads(value)
            except ValueError:
                options[key] = value
    return options


def tasks(arguments: argparse.Namespace) -> list[Task]:
    """One task per engine, all of one shape."""
    spec = WORKLOADS["handshake" if arguments.workload == AGGREGATE else arguments.workload]
    window = arguments.window or spec.window
    epoch = arguments.epoch or (spec.epoch if window <= 8 * spec.epoch else window // 8)
    warmup = arguments.warmup
    if warmup is None:
        warmup = -(-window // epoch) + 2
    spare = SPARE_EPOCHS if arguments.warmup_seconds else 0
    shape = Shape(spec.name, window, epoch, warmup + spare + arguments.epochs, arguments.seed)
    return [
        Task(
            engine,
            shape,
            warmup,
            arguments.warmup_seconds,
            arguments.epochs,
            arguments.driver_memory,
            options=engine_options(arguments.option, engine),
        )
        for engine in arguments.engines
    ]


def announce(text: str) -> None:
    """Progress goes to stderr, the report to stdout."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Run, print, write; 1 when a count is wrong or an engine fails."""
    if sys.argv[1:2] == ["figures"]:
        from bench.figures.__main__ import main as figures

        return figures(sys.argv[2:])
    if sys.argv[1:2] == ["psp"]:
        from bench.psp.__main__ import main as psp

        return psp(sys.argv[2:])
    if sys.argv[1:2] == ["esj"]:
        from bench.esj.__main__ import main as esj

        return esj(sys.argv[2:])
    arguments = parse()
    # A terminated benchmark ends its engines too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if arguments.workload == "tpch-band":
        found = tpch.main(announce)
        text = tpch.markdown(found)
    elif arguments.rate:
        found = rate.compare(tasks(arguments), arguments.rate, arguments.seconds, arguments.timeout, announce)
        text = rate.markdown(found)
    else:
        made = tasks(arguments)
        found = harness.compare(made, arguments.repeat, arguments.timeout, announce)
        text = report.markdown(found)
    print(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if arguments.markdown:
        arguments.markdown.write_text(text)
    return 0 if found["is_correct"] else 1


if __name__ == "__main__":
    sys.exit(main())
