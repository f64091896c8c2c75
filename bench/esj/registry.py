"""All figures, in the order of the page."""

from bench.esj import balance, blocks, efficiency, latency
from bench.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (efficiency.FIGURE, blocks.FIGURE, balance.FIGURE, latency.FIGURE)
