"""``python -m bench psp``; exit code 1 on a wrong count."""

import argparse
import sys
import time
from dataclasses import replace

from bench.figures.collection import ROOT, Collection
from bench.psp.images import Workload
from bench.psp.registry import FIGURES
from bench.psp.replay import warm_up
from bench.psp.streamed import Spark
from bench.psp.sweeps import Setup

FOLDER = ROOT / "bench" / "results" / "psp"
HEAD = """# The experiment of PSP, drawn again

`python -m bench psp` joins streams of images by a pixel difference, on the time-sliced ring (PSP: Wang,
Rundensteiner, Ganguly and Bhatnagar, EDBT 2009) and on the two that it was compared with, aligned and
coordinated tuple routing (ATR, CTR: Gu, Yu and Wang, ICDE 2007); in Spark also as a cascade of binary
bicliques, which stores intermediate results. Claims are in our words and say the shape of
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


COLLECTION = Collection("psp", FIGURES, FOLDER, FOLDER / "README.md", HEAD)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = COLLECTION.parser(__doc__, quick="small, without Spark, in less than a minute", repeat=1)
    local = [figure.name for figure in FIGURES if not figure.needs_spark]
    return COLLECTION.read(parser, arguments, local)


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


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)
    if asked.page:
        COLLECTION.write_page(asked.folder)
        return 0
    began, spark = time.monotonic(), Spark()
    try:
        warm_up()
        is_correct = COLLECTION.measure(asked.figures, setup_of(asked, spark), asked.folder, announce)
    finally:
        spark.stop()
    announce(f"{time.monotonic() - began:.0f} s")
    return 0 if is_correct else 1


if __name__ == "__main__":
    sys.exit(main())
