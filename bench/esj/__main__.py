"""``python -m bench esj``; exit code 1 on a wrong count."""

import argparse
import sys
import time

from bench.esj.registry import FIGURES
from bench.figures.collection import ROOT, Collection
from bench.figures.figure import Setup
from bench.figures.timing import Clock

FOLDER = ROOT / "bench" / "results" / "esj"
HEAD = """# ESJ's experiments, drawn again

`python -m bench esj` measures what ESJ says of a scalable online join on the handshake chain (after the
handshake join: Teubner and Mueller, SIGMOD 2011): efficiency of indexes, the block that workers hand on, the
balance of their loads, and the latency that the chain has beside models with one exchange. Claims are in our
words and say the shape only; a cluster of theirs is one machine of two cores here.

The join is an equality of 16 keys and a band of a 256th of the values, so that every index can be forced on
it; a random pair matches with a probability of 1 / 4,099. Efficiency, rho, is matches per comparison.

The first three figures are of one process, counters exact and repeatable, times CPU times of units, least of
several: what cores of their own would allow. A chain's letters go through a mailbox on disk there, as in
Spark; the state store and the exchange are left out. The last figure is of whole queries in Spark. The
machine is shared: CPU times differ by a tenth from run to run, and times in Spark by more.
"""
COLLECTION = Collection("esj", FIGURES, FOLDER, FOLDER / "README.md", HEAD)
QUICK_SCALE = 1 / 16


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    local = [figure.name for figure in FIGURES if not figure.needs_spark]
    parser = COLLECTION.parser(__doc__, quick="small, without Spark", repeat=3)
    return COLLECTION.read(parser, arguments, local)


def announce(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)
    if asked.page:
        COLLECTION.write_page(asked.folder)
        return 0
    began, clock = time.monotonic(), Clock(asked.seed)
    setup = Setup(QUICK_SCALE if asked.quick else 1.0, asked.seed, asked.repeat, announce, clock)
    try:
        is_correct = COLLECTION.measure(asked.figures, setup, asked.folder, announce)
    finally:
        clock.stop()
    announce(f"{time.monotonic() - began:.0f} s")
    return 0 if is_correct else 1


if __name__ == "__main__":
    sys.exit(main())
