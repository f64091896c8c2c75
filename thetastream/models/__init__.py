"""Models: pure routers. Which unit stores a tuple, which units probe with it.

Adding a model is one file and one line in ``REGISTRY``.
"""

from thetastream.models.base import Hashes, Model, Route
from thetastream.models.biclique import Biclique
from thetastream.models.matrix import Matrix

REGISTRY: dict[str, type] = {"biclique": Biclique, "matrix": Matrix}

__all__ = ["REGISTRY", "Biclique", "Hashes", "Matrix", "Model", "Route"]
