"""Models: pure routers. Which unit stores a tuple, which units probe with it.

Adding a model is one file and one line in ``REGISTRY``.
"""

from thetastream.models.base import Model, Route
from thetastream.models.biclique import Biclique

REGISTRY: dict[str, type] = {"biclique": Biclique}

__all__ = ["REGISTRY", "Biclique", "Model", "Route"]
