"""``python -m bench NAME`` measures, draws and writes figures: of a paper, of all (``figures``), or one."""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import papers
from bench.core import page, plot
from bench.core.clock import Clock
from bench.core.figure import Run, Verdict
from bench.core.machine import describe, read_commit
from bench.core.rows import Row

RESULTS = Path(__file__).parents[1] / "results"
DIGITS = 6


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read the command line; ``chosen`` has the names of the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "name", choices=(papers.ALL, *papers.PAPERS, *papers.names(papers.ALL)), metavar="NAME"
    )
    parser.add_argument("--figures", help="comma-separated names of figures of the paper (default: all)")
    parser.add_argument("--local", action="store_true", help="only the figures that need no Spark")
    parser.add_argument(
        "--quick", action="store_true", help="a small run without Spark, which tests that the figures work"
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing, and write the pages from the JSON files"
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out figures that this commit has measured already"
    )
    parser.add_argument(
        "--folder", type=Path, default=RESULTS, help="the folder in which each paper has a folder"
    )
    parser.add_argument(
        "--scale", type=float, help="size of the inputs; 1 is the size of the committed figures"
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of each query in Spark")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    own = papers.names(asked.name) if asked.name in (papers.ALL, *papers.PAPERS) else [asked.name]
    wanted = asked.figures.split(",") if asked.figures else own
    if unknown := set(wanted) - set(own):
        parser.error(f"unknown figures: {', '.join(sorted(unknown))}; there are {', '.join(own)}")
    if (asked.quick or asked.scale) and asked.folder == RESULTS:
        parser.error("--quick and --scale need a --folder: they would replace the committed figures")
    is_local = asked.local or asked.quick
    asked.chosen = [n for n in own if n in wanted and not (is_local and papers.figure(n).needs_spark)]
    if asked.resume:
        asked.chosen = [n for n in asked.chosen if not is_measured(asked.folder / papers.paper_of(n), n)]
    return asked


def is_measured(folder: Path, name: str) -> bool:
    """Whether a figure was measured at the commit that is checked out, with right counts."""
    path = folder / f"{name}.json"
    if not path.exists():
        return False
    found = json.loads(path.read_text())
    is_correct = all(check["is_equal"] for check in found["checks"])
    return is_correct and found["machine"]["commit"] == read_commit()


def main(arguments: list[str], announce: Callable[[str], None]) -> int:
    """Measure and write; return 1 if a count is wrong."""
    asked = parse(arguments)
    is_correct, began, clock = True, time.monotonic(), Clock()
    try:
        for name in [] if asked.page else asked.chosen:
            announce(f"figure {name}")
            paper = papers.paper_of(name)
            scale = asked.scale or (papers.package(paper).QUICK_SCALE if asked.quick else 1.0)
            run, started = Run(scale, asked.seed, asked.repeat, announce, clock), time.monotonic()
            verdict = papers.figure(name).measure(run)
            found = write(name, run, verdict, time.monotonic() - started, asked.folder / paper)
            announce(page.sentence(found))
            is_correct &= all(check["is_equal"] for check in found["checks"])
    finally:
        clock.close()
    for paper in dict.fromkeys(map(papers.paper_of, asked.chosen)):
        write_page(paper, asked.folder / paper)
    write_index(asked.folder)
    announce(f"{time.monotonic() - began:.0f} s")
    return 0 if is_correct else 1


def write(name: str, run: Run, verdict: Verdict, seconds: float, folder: Path) -> dict[str, Any]:
    """Write the three files of a figure: numbers, picture and table."""
    figure = papers.figure(name)
    found = {
        "name": name,
        **{key: getattr(figure, key) for key in ("title", "source", "claim", "ratio_of", "truth")},
        "verdict": {"agrees": verdict.agrees, "ratio": verdict.ratio, "text": verdict.text},
        "scale": run.scale,
        "seed": run.seed,
        "repeat": run.repeat if figure.needs_spark else 1,
        "seconds": round(seconds),
        "parameters": run.parameters,
        "checks": [{**vars(check), "is_equal": check.is_equal} for check in run.checks],
        "machine": describe(),
        "rows": [round_figures(row) for row in run.rows],
        "runs": [round_figures(row) for row in run.runs],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    plot.draw(figure, found["rows"], folder / f"{name}.png")
    write_table(found, folder)
    return found


def write_table(found: dict[str, Any], folder: Path) -> None:
    """Write the section of a figure, with its table, from its numbers."""
    name = found["name"]
    (folder / f"{name}.md").write_text(page.section(papers.figure(name), found) + "\n")


def round_figures(row: Row) -> Row:
    return {k: float(f"{v:.{DIGITS}g}") if isinstance(v, float) else v for k, v in row.items()}


def write_page(paper: str, folder: Path) -> None:
    """Write the sections of a paper and its page from the numbers of its figures."""
    paths = [folder / f"{name}.json" for name in papers.names(paper)]
    found = [json.loads(path.read_text()) for path in paths if path.exists()]
    for one in found:
        write_table(one, folder)
    figures = [(papers.figure(one["name"]), one) for one in found]
    (folder / "README.md").write_text(page.page(papers.package(paper).__doc__, figures))


def write_index(folder: Path) -> None:
    """Write the page of all figures from their numbers."""
    measured = []
    for name in papers.names(papers.ALL):
        path = folder / papers.paper_of(name) / f"{name}.json"
        if path.exists():
            measured.append((path.parent.name, papers.figure(name), json.loads(path.read_text())))
    (folder / "README.md").write_text(page.index(measured))
