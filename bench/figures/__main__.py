"""``python -m bench figures``; exit code 1 on a wrong count."""

import argparse
import sys
from pathlib import Path

from bench.figures.registry import FIGURES
from bench.figures.run import FOLDER, QUICK, QUICK_SCALE, run, write_page


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    names = [figure.name for figure in FIGURES]
    parser = argparse.ArgumentParser(prog="python -m bench figures", description=__doc__)
    parser.add_argument("--figures", help=f"comma-separated, of {', '.join(names)}; all by default")
    parser.add_argument("--local", action="store_true", help="only those that need no Spark")
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}, tiny")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page from the JSON")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 600,000 tuples of lineitem")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each query in Spark")
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args(arguments)
    parsed.figures = parsed.figures.split(",") if parsed.figures else names
    if unknown := set(parsed.figures) - set(names):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if parsed.local:
        parsed.figures = [f.name for f in FIGURES if f.name in parsed.figures and not f.needs_spark]
    if parsed.quick:
        parsed.figures, parsed.scale = list(QUICK), QUICK_SCALE
        if parsed.folder == FOLDER:
            parser.error("--quick needs a --folder of its own: it would replace the committed figures")
    return parsed


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)

    def announce(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if asked.page:
        write_page(asked.folder)
        return 0
    found = run(asked.figures, asked.folder, asked.scale, asked.seed, asked.repeat, announce)
    return 0 if found["is_correct"] else 1


if __name__ == "__main__":
    sys.exit(main())
