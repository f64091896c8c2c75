"""The papers' figures: where they and their page lie, and how large they are measured."""

from collections.abc import Callable
from pathlib import Path

from bench.figures.collection import ROOT, Collection
from bench.figures.figure import Setup
from bench.figures.page import HEAD
from bench.figures.registry import FIGURES
from bench.figures.timing import Clock

COLLECTION = Collection(
    "figures", FIGURES, ROOT / "bench" / "results" / "figures", ROOT / "docs" / "figures.md", HEAD
)
QUICK = ("memory-by-volume", "bandwidth-by-rate")
"""What ``--quick`` draws, at ``QUICK_SCALE``: a test of the machinery, in seconds."""
QUICK_SCALE = 0.02


def run(
    names: list[str], folder: Path, scale: float, seed: int, repeat: int, announce: Callable[[str], None]
) -> bool:
    """Measure figures by name; whether every count is right."""
    clock = Clock(seed)
    try:
        return COLLECTION.measure(names, Setup(scale, seed, repeat, announce, clock), folder, announce)
    finally:
        clock.stop()
