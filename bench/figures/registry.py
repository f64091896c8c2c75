"""All figures, in the order of the page."""

from bench.figures import bandwidth, capacity, memory, skew, splitjoin, throughput
from bench.figures.figure import Figure

FIGURES: tuple[Figure, ...] = (
    *memory.FIGURES,
    *bandwidth.FIGURES,
    *throughput.FIGURES,
    *skew.FIGURES,
    *capacity.FIGURES,
    *splitjoin.FIGURES,
)
