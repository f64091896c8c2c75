"""Models: pure routers, which choose the unit that stores a tuple and the units that probe with it.

To add a model, write one file and one entry in ``REGISTRY``. Planners, ``explain``, the command line and jobs
look models up there, and read everything else from the model.
"""

from thetastream.models.atr import ATR
from thetastream.models.base import Hashes, Model, Places, Route
from thetastream.models.biclique import Biclique
from thetastream.models.chain import Chain
from thetastream.models.ctr import CTR
from thetastream.models.matrix import Matrix
from thetastream.models.multiway import Multiway
from thetastream.models.ring import Ring
from thetastream.models.split import Split

REGISTRY: dict[str, type[Model]] = {
    "atr": ATR,
    "biclique": Biclique,
    "chain": Chain,
    "ctr": CTR,
    "matrix": Matrix,
    "ring": Ring,
    "split": Split,
}

__all__ = [
    "ATR",
    "CTR",
    "REGISTRY",
    "Biclique",
    "Chain",
    "Hashes",
    "Matrix",
    "Model",
    "Multiway",
    "Places",
    "Ring",
    "Route",
    "Split",
]
