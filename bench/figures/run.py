"""Measure figures and write, for each, PNG, Markdown and JSON; then the page over all there are."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.figures import page, plot
from bench.figures.figure import Figure, Measured, Row, Setup
from bench.figures.registry import FIGURES
from bench.figures.timing import Clock
from bench.machine import describe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "bench" / "results" / "figures"
PAGE = ROOT / "docs" / "figures.md"
QUICK = ("memory-by-volume", "bandwidth-by-rate")
"""What ``--quick`` draws, at ``QUICK_SCALE``: a test of the machinery, in seconds."""
QUICK_SCALE = 0.02
DIGITS = 6


def run(
    names: list[str],
    folder: Path,
    scale: float,
    seed: int,
    repeat: int,
    announce: Callable[[str], None],
    figures: tuple[Figure, ...] = FIGURES,
    into_page: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Figures by name, then the page over them; True under ``is_correct`` if every count is right."""
    folder.mkdir(parents=True, exist_ok=True)
    clock = Clock(seed)
    setup = Setup(scale, seed, repeat, announce, clock)
    by_name = {figure.name: figure for figure in figures}
    found = {}
    try:
        for name in names:
            announce(f"figure {name}")
            found[name] = write(by_name[name], by_name[name].measure(setup), setup, folder)
            announce(page.sentence(found[name]))
    finally:
        clock.stop()
    (into_page or write_page)(folder)
    is_correct = all(check["is_equal"] for one in found.values() for check in one["checks"])
    return {"figures": found, "is_correct": is_correct}


def write(figure: Figure, measured: Measured, setup: Setup, folder: Path) -> dict[str, Any]:
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


def write_page(folder: Path) -> None:
    """The page over all figures that the folder has: ``docs/figures.md`` for the committed ones."""
    known = [
        (figure, json.loads(path.read_text()))
        for figure in FIGURES
        if (path := folder / f"{figure.name}.json").exists()
    ]
    missing = [figure for figure in FIGURES if not (folder / f"{figure.name}.json").exists()]
    is_committed = folder.resolve() == FOLDER.resolve()
    pictures = "../bench/results/figures/" if is_committed else ""
    (PAGE if is_committed else folder / "figures.md").write_text(
        page.page(known, missing if is_committed else [], pictures)
    )
