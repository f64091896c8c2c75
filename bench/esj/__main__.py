"""``python -m bench esj``; exit code 1 on a wrong count."""

import argparse
import json
import sys
import time
from pathlib import Path

from bench.esj.registry import FIGURES
from bench.figures import page
from bench.figures.run import ROOT, run

FOLDER = ROOT / "bench" / "results" / "esj"
PAGE = "README.md"
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


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    names = [figure.name for figure in FIGURES]
    parser = argparse.ArgumentParser(prog="python -m bench esj", description=__doc__)
    parser.add_argument("--figures", help=f"comma-separated, of {', '.join(names)}; all by default")
    parser.add_argument("--local", action="store_true", help="only those that need no Spark")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="of windows and epochs")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each query in Spark")
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args(arguments)
    parsed.figures = parsed.figures.split(",") if parsed.figures else names
    if unknown := set(parsed.figures) - set(names):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if parsed.local:
        parsed.figures = [f.name for f in FIGURES if f.name in parsed.figures and not f.needs_spark]
    if parsed.scale != 1 and parsed.folder == FOLDER:
        parser.error("--scale needs a --folder of its own: it would replace the committed figures")
    return parsed


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
    (folder / PAGE).write_text(page.page(known, missing if folder == FOLDER else [], "", HEAD))


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)
    if asked.page:
        write_page(asked.folder)
        return 0
    began = time.monotonic()
    found = run(
        asked.figures, asked.folder, asked.scale, asked.seed, asked.repeat, announce, FIGURES, write_page
    )
    announce(f"{time.monotonic() - began:.0f} s")
    return 0 if found["is_correct"] else 1


if __name__ == "__main__":
    sys.exit(main())
