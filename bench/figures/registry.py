"""All figures, in the order of the page."""

from bench.figures import memory
from bench.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (*memory.FIGURES,)
