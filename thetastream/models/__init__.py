"""Models: pure routers. Which unit stores a tuple, which units probe with it.

Adding a model is one file and one line in ``REGISTRY``.
"""

from thetastream.models.base import Hashes, Model, Places, Route
from thetastream.models.biclique import Biclique
from thetastream.models.matrix import Matrix
from thetastream.models.ring import Ring
from thetastream.models.split import Split

REGISTRY: dict[str, type] = {"biclique": Biclique, "matrix": Matrix, "ring": Ring, "split": Split}

__all__ = ["REGISTRY", "Biclique", "Hashes", "Matrix", "Model", "Places", "Ring", "Route", "Split"]
