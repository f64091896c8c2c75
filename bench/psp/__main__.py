"""``python -m bench psp``; exit code 1 on a wrong count."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.figures import page
from bench.figures.run import ROOT, write
from bench.psp.images import Workload
from bench.psp.registry import FIGURES
from bench.psp.replay import warm_up
from bench.psp.streamed import Spark
from bench.psp.sweeps import Setup

FOLDER = ROOT / "bench" / "results" / "psp"
PAGE = "README.md"
HEAD = """# The experiment of PSP, drawn again

`python -m bench psp` joins streams of images by a pixel difference, on the time-sliced ring (PSP: Wang,
Rundensteiner, Ganguly and Bhatnagar, EDBT 2009) and on the two that it was compared with, aligned and
coordinated tuple routing (ATR, CTR: Gu, Yu and Wang, ICDE 2007). Claims are in our words and say the shape of
the paper's figure 8, whose numbers were not at hand; a cluster of theirs is one machine of two cores here.

Stream i is joined with stream i + 1 where the mean difference of pixels is below a threshold, the quantile
that makes the selectivity what it says; all tuples of a result lie within one window. Arrivals are Poisson, a
tuple a second of each stream, in epochs of 12 seconds. ATR's segments are as long as the window, CTR's a
sixth of it, on two nodes each.

Copies, tuples, bytes, probes and epochs are counted in one process, exact and repeatable. "Response" is from
the epoch of a result's last tuple to the one it leaves in: in epochs, and in milliseconds if each epoch takes
as long as its busiest node on a core of its own. That leaves out the exchange, the state store and the half
second that Spark needs for an epoch, however little it does; whole queries in Spark are the last figure.
Every number of results is compared with that of a nested loop in NumPy.
"""


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    names = [figure.name for figure in FIGURES]
    parser = argparse.ArgumentParser(prog="python -m bench psp", description=__doc__)
    parser.add_argument("--figures", help=f"comma-separated, of {', '.join(names)}; all by default")
    parser.add_argument("--local", action="store_true", help="only those that need no Spark")
    parser.add_argument("--quick", action="store_true", help="small, without Spark, in less than a minute")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the JSON")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--repeat", type=int, default=1, help="runs of each query in Spark")
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args(arguments)
    parsed.figures = parsed.figures.split(",") if parsed.figures else names
    if unknown := set(parsed.figures) - set(names):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if parsed.local or parsed.quick:
        parsed.figures = [f.name for f in FIGURES if f.name in parsed.figures and not f.needs_spark]
    if parsed.quick and parsed.folder == FOLDER:
        parser.error("--quick needs a --folder of its own: it would replace the committed figures")
    return parsed


def setup_of(asked: argparse.Namespace, spark: Spark) -> Setup:
    """How large everything is."""
    base = Workload(seed=asked.seed)
    setup = Setup(
        base=base,
        many=replace(base, tuples=240, per_window=24, selectivity=0.05),
        doubling=replace(base, tuples=540, pixels=5_000, doubles=True),
        selectivities=(0.05, 0.1, 0.5),
        lengths=(1, 2, 3, 4),
        counts=(3, 5, 7),
        sizes=(5_000, 10_000, 20_000),
        spark_nodes=(1, 2),
        repeat=asked.repeat,
        announce=announce,
        spark=spark,
        scale=1.0,
        seed=asked.seed,
    )
    if not asked.quick:
        return setup
    small = replace(base, tuples=60, per_window=16, pixels=1_000)
    return replace(
        setup,
        base=small,
        many=replace(small, per_window=10),
        doubling=replace(small, tuples=120, doubles=True),
        selectivities=(0.05, 0.5),
        lengths=(1, 4),
        counts=(3, 5),
        sizes=(1_000, 4_000),
        scale=0.1,
    )


def announce(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def write_page(folder: Path) -> None:
    """The page over all figures that the folder has."""
    paths = {figure.name: folder / f"{figure.name}.json" for figure in FIGURES}
    known = [
        (figure, json.loads(paths[figure.name].read_text()))
        for figure in FIGURES
        if paths[figure.name].exists()
    ]
    missing = [figure for figure in FIGURES if not paths[figure.name].exists()]
    text = page.page(known, missing if folder.resolve() == FOLDER.resolve() else [], "", HEAD)
    (folder / PAGE).write_text(text)


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)
    if asked.page:
        write_page(asked.folder)
        return 0
    asked.folder.mkdir(parents=True, exist_ok=True)
    began, spark, is_correct = time.monotonic(), Spark(), True
    setup: Any = setup_of(asked, spark)
    try:
        warm_up()
        for figure in FIGURES:
            if figure.name in asked.figures:
                announce(f"figure {figure.name}")
                found = write(figure, figure.measure(setup), setup, asked.folder)
                announce(page.sentence(found))
                is_correct &= all(check["is_equal"] for check in found["checks"])
    finally:
        spark.stop()
    write_page(asked.folder)
    announce(f"{time.monotonic() - began:.0f} s")
    return 0 if is_correct else 1


if __name__ == "__main__":
    sys.exit(main())
