"""Measures of two values, which conjuncts compare with a constant.

To add a measure, write one file with a subclass of ``thetastream.core.measure.PairMeasure`` and one line in
``REGISTRY``. Planning reads the registry. Workers do not read it: the plan carries the measure by value.
"""

from thetastream.core.measure import PairMeasure
from thetastream.index.measures.bits import Hamming
from thetastream.index.measures.edits import EditDistance
from thetastream.index.measures.ranges import Difference
from thetastream.index.measures.sets import (
    ArrayContains,
    ArraysOverlap,
    Contained,
    Contains,
    Dice,
    Jaccard,
    JaccardOfSizes,
    OverlapRatio,
    Shared,
    TryContained,
    TryContains,
    TryDice,
    TryJaccard,
    TryJaccardOfSizes,
    TryOverlapRatio,
)
from thetastream.index.measures.sphere import Metres
from thetastream.index.measures.vectors import Cosine, Distance, Product

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
        Jaccard(),
        JaccardOfSizes(),
        Contained(),
        Contains(),
        OverlapRatio(),
        Dice(),
        TryJaccard(),
        TryJaccardOfSizes(),
        TryContained(),
        TryContains(),
        TryOverlapRatio(),
        TryDice(),
        Shared(),
        ArraysOverlap(),
        ArrayContains(),
    )
}

__all__ = ["REGISTRY"]
