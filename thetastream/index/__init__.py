"""Index shapes: how a run of tuples is ordered and found again.

Adding a shape is one file and one line in ``REGISTRY``; ``plan/lower.py`` says when it is chosen.
"""

from thetastream.index.base import Shape
from thetastream.index.grid import Grid
from thetastream.index.hash import Hash, HashSorted
from thetastream.index.scan import Scan
from thetastream.index.sorted import Sorted

REGISTRY: dict[str, Shape] = {
    "scan": Scan(),
    "sorted": Sorted(),
    "hash": Hash(),
    "hash_sorted": HashSorted(),
    "grid": Grid(),
}
