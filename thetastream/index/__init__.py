"""Index shapes: how the tuples of a run are ordered and looked up.

To add a shape, write one file with a subclass of ``Shape`` and one line in ``REGISTRY``. Planning, costs,
explain, the setting ``index`` and the conformance tests read the registry. Workers do not read it: the plan
carries the shape by value, so a shape that a user registers in the driver works in all workers.
"""

from thetastream.index.base import (
    Access,
    Fit,
    Indexable,
    IndexSpec,
    Layout,
    LayoutRules,
    Pairs,
    ProbeCost,
    Search,
    Shape,
    Span,
    StoredRows,
)
from thetastream.index.grid import Grid
from thetastream.index.hash import Hash, HashSorted
from thetastream.index.intervals import Intervals
from thetastream.index.scan import Scan
from thetastream.index.sorted import Sorted
from thetastream.index.tiles import HashTiles, Tiles

REGISTRY: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Scan(),
        Sorted(),
        Intervals(),
        Hash(),
        HashSorted(),
        Grid(),
        Tiles(),
        HashTiles(),
    )
}

__all__ = [
    "REGISTRY",
    "Access",
    "Fit",
    "Grid",
    "Hash",
    "HashSorted",
    "HashTiles",
    "IndexSpec",
    "Indexable",
    "Intervals",
    "Layout",
    "LayoutRules",
    "Pairs",
    "ProbeCost",
    "Scan",
    "Search",
    "Shape",
    "Sorted",
    "Span",
    "StoredRows",
    "Tiles",
]
