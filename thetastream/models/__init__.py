"""Models: pure routers. Which unit stores a tuple, which units probe with it.

Adding a model is one file and one line in ``REGISTRY``.
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

REGISTRY: dict[str, type] = {
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
