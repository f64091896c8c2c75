"""Measures of two values, which conjuncts compare with a constant, or with a threshold of each row.

To add a measure, write one file with a subclass of ``thetastream.core.measure.PairMeasure`` and one line in
``REGISTRY``. Planning reads the registry. Workers do not read it: the plan carries the measure by value.
"""

from thetastream.core.measure import PairMeasure
from thetastream.index.measures.bits import Hamming
from thetastream.index.measures.edits import EditDistance
from thetastream.index.measures.ranges import Difference
from thetastream.index.measures.set_ratios import (
    ArrayContains,
    ArraysOverlap,
    Contained,
    Contains,
    Dice,
    Jaccard,
    JaccardOfSizes,
    OverlapRatio,
    Shared,
)
from thetastream.index.measures.sphere import Metres
from thetastream.index.measures.vectors import Cosine, Distance, Product

_RATIOS = Jaccard, JaccardOfSizes, Contained, Contains, OverlapRatio, Dice

REGISTRY: dict[str, PairMeasure] = {
    measure.name: measure
    for measure in (
        Cosine(),
        Product(),
        Distance(),
        Hamming(),
        EditDistance(),
        Metres(),
        Difference(),
        *(ratio() for ratio in _RATIOS),
        *(ratio(is_tried=True) for ratio in _RATIOS),
        Shared(),
        ArraysOverlap(),
        ArrayContains(),
    )
}

__all__ = ["REGISTRY"]
