"""``python -m bench figures``; exit code 1 on a wrong count."""

import argparse
import sys

from bench.figures.run import COLLECTION, QUICK, QUICK_SCALE, run


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Command line."""
    parser = COLLECTION.parser(__doc__, quick=f"only {', '.join(QUICK)}, tiny", repeat=3)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 600,000 tuples of lineitem")
    asked = COLLECTION.read(parser, arguments, QUICK)
    if asked.quick:
        asked.scale = QUICK_SCALE
    return asked


def main(arguments: list[str] | None = None) -> int:
    """Measure and write; 1 when a count is wrong."""
    asked = parse(arguments)

    def announce(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if asked.page:
        COLLECTION.write_page(asked.folder)
        return 0
    is_correct = run(asked.figures, asked.folder, asked.scale, asked.seed, asked.repeat, announce)
    return 0 if is_correct else 1


if __name__ == "__main__":
    sys.exit(main())
