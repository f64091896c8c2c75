"""Figures of one page: the command that measures them, files of each, the page over all there are."""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.figures import page, plot
from bench.figures.figure import Figure, Measured, Row
from bench.machine import describe

ROOT = Path(__file__).parents[2]
DIGITS = 6


@dataclass(frozen=True)
class Collection:
    """What ``python -m bench <name>`` draws, and where the committed figures and their page lie."""

    name: str
    figures: tuple[Figure, ...]
    folder: Path
    page: Path
    head: str

    def parser(self, about: str | None, quick: str, repeat: int) -> argparse.ArgumentParser:
        """The command line that all have."""
        names = ", ".join(figure.name for figure in self.figures)
        parser = argparse.ArgumentParser(prog=f"python -m bench {self.name}", description=about)
        parser.add_argument("--figures", help=f"comma-separated, of {names}; all by default")
        parser.add_argument("--local", action="store_true", help="only those that need no Spark")
        parser.add_argument("--quick", action="store_true", help=quick)
        parser.add_argument(
            "--page", action="store_true", help="measure nothing, write the page from the JSON"
        )
        parser.add_argument("--folder", type=Path, default=self.folder)
        parser.add_argument("--repeat", type=int, default=repeat, help="runs of each query in Spark")
        parser.add_argument("--seed", type=int, default=1)
        return parser

    def read(
        self, parser: argparse.ArgumentParser, arguments: list[str] | None, quick: Sequence[str]
    ) -> argparse.Namespace:
        """Arguments with the figures that are meant; ``quick`` are those of ``--quick``."""
        names = [figure.name for figure in self.figures]
        asked = parser.parse_args(arguments)
        wanted = asked.figures.split(",") if asked.figures else list(quick) if asked.quick else names
        if unknown := set(wanted) - set(names):
            parser.error(f"unknown figures: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        if asked.quick and asked.folder == self.folder:
            parser.error("--quick needs a --folder of its own: it would replace the committed figures")
        local = {figure.name for figure in self.figures if not figure.needs_spark}
        is_local = asked.local or asked.quick
        asked.figures = [
            name for name in names if name in wanted and (name in local or name in quick or not is_local)
        ]
        return asked

    def measure(
        self, names: Sequence[str], setup: Any, folder: Path, announce: Callable[[str], None]
    ) -> bool:
        """Measure and write figures by name, then the page; whether every count is right."""
        folder.mkdir(parents=True, exist_ok=True)
        is_correct = True
        for figure in self.figures:
            if figure.name in names:
                announce(f"figure {figure.name}")
                found = write(figure, figure.measure(setup), setup, folder)
                announce(page.sentence(found))
                is_correct &= all(check["is_equal"] for check in found["checks"])
        self.write_page(folder)
        return is_correct

    def write_page(self, folder: Path) -> None:
        """The page over all figures that a folder has; of other folders than the committed one inside."""
        paths = {figure.name: folder / f"{figure.name}.json" for figure in self.figures}
        known = [
            (figure, json.loads(paths[figure.name].read_text()))
            for figure in self.figures
            if paths[figure.name].exists()
        ]
        is_committed = folder.resolve() == self.folder.resolve()
        missing = [figure for figure in self.figures if is_committed and not paths[figure.name].exists()]
        target = self.page if is_committed else folder / self.page.name
        pictures = "" if target.parent == folder else os.path.relpath(folder, target.parent) + "/"
        target.write_text(page.page(known, missing, pictures, self.head))


def write(figure: Figure, measured: Measured, setup: Any, folder: Path) -> dict[str, Any]:
    """The three files of a figure."""
    found = {
        "name": figure.name,
        "title": figure.title,
        "source": figure.source,
        "claim": figure.claim,
        "ratio_of": figure.ratio_of,
        "truth": figure.truth,
        "verdict": asdict(measured.verdict),
        "scale": setup.scale,
        "seed": setup.seed,
        "repeat": setup.repeat if figure.needs_spark else 1,
        "parameters": measured.parameters,
        "checks": [{**asdict(check), "is_equal": check.is_equal} for check in measured.checks],
        "machine": describe(),
        "rows": [_rounded(row) for row in measured.rows],
        "runs": [_rounded(run) for run in measured.runs],
    }
    text = json.dumps(found, indent=1, ensure_ascii=False)
    (folder / f"{figure.name}.json").write_text(text + "\n")
    plot.draw(figure, found["rows"], folder / f"{figure.name}.png")
    (folder / f"{figure.name}.md").write_text(page.section(figure, found, "") + "\n")
    return found


def _rounded(row: Row) -> Row:
    return {
        key: float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value for key, value in row.items()
    }
