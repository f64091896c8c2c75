"""``python -m bench NAME`` measures a workload or figures of papers. The exit code is 1 if a count is wrong.

NAME is a workload (handshake, equi, stock, inequality), on which Thetastream is compared with Spark and
DuckDB; aggregate; outer; outer-equi; backfill; calibrate; executors; first-result; floor; questions; index-
shapes; join-trees; changes; tables; tasks; units; similarity; distances; predicate-cost; one-epoch; soak;
overload; serving; a paper (bistream, splitjoin, psp, esj); figures, for those of all papers; or the name of a
figure. Figures, soak, overload, serving, predicate-cost and one-epoch have options of their own: python -m
bench figures --help.
"""

import argparse
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import papers
from bench.core.engines import ENGINES
from bench.core.suites import SUITES, Suite, list_pairs, list_tasks

PROGRAMS = {
    "soak": "bench.core.soak.run",
    "overload": "bench.core.overload",
    "serving": "bench.core.serving.run",
    "predicate-cost": "bench.papers.psp.predicate_cost",
    "one-epoch": "bench.core.one_epoch",
}
"""Benchmarks with options of their own, by name."""
MEASUREMENTS = {
    "calibrate": "bench.core.calibrate",
    "executors": "bench.core.executors",
    "first-result": "bench.core.first_result",
    "floor": "bench.core.floor",
    "questions": "bench.core.questions",
    "index-shapes": "bench.core.index_shapes",
    "join-trees": "bench.core.join_trees",
    "changes": "bench.core.changes",
    "tables": "bench.core.tables.run",
    "similarity": "bench.core.similarity",
    "distances": "bench.core.distances",
    "tasks": "bench.core.shared_tasks",
    "units": "bench.core.units",
}
"""Benchmarks that compare no engines, with the same options as those that do, by name."""
QUICK: dict[str, Any] = {"warmup_seconds": 30.0, "epochs": 6, "repeat": 1}
"""Values of ``--quick`` that the command line does not give. A run takes a minute once its data exists."""
USUAL: dict[str, Any] = {"warmup_seconds": 60.0, "epochs": 8, "repeat": 3}


OPTIONS = (
    ("--window", int, None, "tuples of each stream in the window"),
    ("--epoch", int, None, "tuples of each stream in an epoch"),
    ("--epochs", int, None, "measured epochs after the warm-up (default 8, or 300 of floor)"),
    ("--warmup", int, None, "least number of epochs before the measured ones (default: the window and two)"),
    ("--warmup-seconds", float, None, "least seconds before the measured epochs (default 60)"),
    ("--repeat", int, None, "runs of each engine, in turn (default 3, or 1 with --rate)"),
    ("--engines", str, None, f"comma-separated names of {', '.join(ENGINES)}"),
    ("--rate", int, 0, "tuples per second of both streams together, in real time"),
    ("--seconds", int, 30, "measured seconds with --rate"),
    ("--seed", int, 1, "seed of the data (default 1)"),
    ("--driver-memory", str, "4g", "memory of the Spark driver, for both Spark engines"),
    ("--timeout", float, 1800, "longest time of a run in seconds"),
    ("--json", Path, None, "write the results and all runs to this file"),
    ("--markdown", Path, None, "write the table to this file"),
)
"""The options with a value: type, default and help."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workload", choices=[*SUITES, *MEASUREMENTS])
    for name, kind, default, text in OPTIONS:
        parser.add_argument(name, type=kind, default=default, help=text)
    parser.add_argument(
        "--quick", action="store_true", help="a run of about a minute, of Thetastream alone, with six epochs"
    )
    option_help = "an option of an engine, such as spark.cell=40"
    parser.add_argument(
        "--option", action="append", default=[], metavar="ENGINE.NAME=VALUE", help=option_help
    )
    asked = parser.parse_args(arguments)
    usual = QUICK if asked.quick else {**USUAL, "repeat": 1} if asked.rate else USUAL
    if asked.workload in MEASUREMENTS:
        usual = {**usual, "epochs": None}  # They have numbers of epochs of their own.
    for name, value in usual.items():
        setattr(asked, name, value if getattr(asked, name) is None else getattr(asked, name))
    suite = SUITES.get(asked.workload, Suite(()))
    usual_engines = suite.quick_engines if asked.quick else suite.engines
    asked.engines = asked.engines.split(",") if asked.engines else list(usual_engines)
    if unknown := set(asked.engines) - set(ENGINES):
        parser.error(f"unknown engines: {', '.join(sorted(unknown))}; there are {', '.join(ENGINES)}")
    return asked


def announce(text: str) -> None:
    """Print progress on stderr. Reports go to stdout."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    """Measure, print and write; return 1 if a count is wrong or an engine fails."""
    # A benchmark that is terminated ends its engines too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    first = arguments[0] if arguments else ""
    if papers.is_known(first):
        return import_module("bench.core.drawing").main(arguments, announce)
    if first in PROGRAMS:
        return import_module(PROGRAMS[first]).main(arguments[1:], announce)
    asked = parse(arguments)
    if asked.workload in MEASUREMENTS:
        return import_module(MEASUREMENTS[asked.workload]).main(asked, announce)
    from bench.core import harness, publishing, report

    suite = SUITES[asked.workload]
    tasks = list_tasks(suite, asked)
    found = harness.compare(tasks, list_pairs(suite, tasks), asked.repeat, asked.timeout, announce)
    text = report.markdown(found)
    publishing.publish(text, found, asked)
    return 0 if found["is_correct"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
