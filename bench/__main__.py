"""``python -m bench NAME`` measures a workload or figures of papers. The exit code is 1 if a count is wrong.

NAME is a workload (handshake, equi, stock, inequality), on which Thetastream is compared with Spark and
DuckDB; aggregate; backfill; predicate-cost; a paper (bistream, splitjoin, psp, esj); figures, for those of
all papers; or the name of a figure. Figures have options of their own: python -m bench figures --help.
"""

import argparse
import json
import signal
import sys
from pathlib import Path
from typing import Any

from bench import papers
from bench.core.engines import ENGINES
from bench.core.suites import SUITES, Suite, list_pairs, list_tasks

PREDICATE = "predicate-cost"
QUICK: dict[str, Any] = {"warmup_seconds": 30.0, "epochs": 6, "repeat": 1}
"""Values of ``--quick`` that the command line does not give. A run takes a minute once its data exists."""
USUAL: dict[str, Any] = {"warmup_seconds": 60.0, "epochs": 8, "repeat": 3}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workload", choices=[*SUITES, PREDICATE])
    parser.add_argument("--window", type=int, help="tuples of each stream in the window")
    parser.add_argument("--epoch", type=int, help="tuples of each stream in an epoch")
    parser.add_argument("--epochs", type=int, help="measured epochs after the warm-up (default 8)")
    parser.add_argument(
        "--warmup",
        type=int,
        help="least number of epochs before the measured ones (default: the window and two)",
    )
    parser.add_argument(
        "--warmup-seconds", type=float, help="least seconds before the measured epochs (default 60)"
    )
    parser.add_argument(
        "--repeat", type=int, help="runs of each engine, in turn (default 3, or 1 with --rate)"
    )
    parser.add_argument("--engines", help=f"comma-separated names of {', '.join(ENGINES)}")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a run of about a minute, of Thetastream alone, with one run of six epochs",
    )
    parser.add_argument(
        "--rate", type=int, default=0, help="tuples per second of both streams together, in real time"
    )
    parser.add_argument("--seconds", type=int, default=30, help="measured seconds with --rate")
    parser.add_argument("--seed", type=int, default=1, help="seed of the data (default 1)")
    parser.add_argument(
        "--driver-memory", default="4g", help="memory of the Spark driver, for both Spark engines"
    )
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="ENGINE.NAME=VALUE",
        help="an option of an engine, such as spark.cell=40",
    )
    parser.add_argument("--timeout", type=float, default=1800, help="longest time of a run in seconds")
    parser.add_argument("--json", type=Path, help="write the results and all runs to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    asked = parser.parse_args(arguments)
    usual = QUICK if asked.quick else {**USUAL, "repeat": 1} if asked.rate else USUAL
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
    if arguments and papers.is_known(arguments[0]):
        from bench.core import drawing

        return drawing.main(arguments, announce)
    asked = parse(arguments)
    if asked.workload == PREDICATE:
        from bench.papers.psp import predicate_cost

        return predicate_cost.main()
    from bench.core import harness, report

    suite = SUITES[asked.workload]
    tasks = list_tasks(suite, asked)
    found = harness.compare(tasks, list_pairs(suite, tasks), asked.repeat, asked.timeout, announce)
    text = report.markdown(found)
    print(text)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    if asked.markdown:
        asked.markdown.write_text(text)
    return 0 if found["is_correct"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
