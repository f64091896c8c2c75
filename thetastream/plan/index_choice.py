"""Chooses the index of stored tuples: the strongest shape that fits, or the shape that the user names.

    equalities and a dimension    hash_sorted      equalities               hash
    two bands                     grid             one dimension            sorted
    overlap of intervals          intervals        nothing                  scan
    a window alone                sorted by time

Each shape defines when it fits and how strong it is (``thetastream.index.Shape``). So this table describes
the shapes of this package, and a shape that a user registers needs no change here.
"""

from thetastream.core.condition import Condition
from thetastream.errors import QueryError
from thetastream.index import REGISTRY
from thetastream.index.base import Indexable, IndexSpec


def choose_index(condition: Condition, asked: str | None = None) -> tuple[IndexSpec, str]:
    """Return the index of both sides and the reason for the choice.

    Parameters
    ----------
    condition : Condition
        The condition of the join.
    asked : str, optional
        The name of the shape to use. If it is None, the strongest shape that fits is used.

    Raises
    ------
    QueryError
        UNKNOWN_INDEX or INDEX_NOT_APPLICABLE if the named shape is unknown or does not fit.
    """
    offer = Indexable.of(condition)
    if asked is not None:
        return _choose_asked_index(asked, offer), "forced by index="
    by_strength = sorted(REGISTRY.values(), key=lambda shape: shape.strength, reverse=True)
    fits = ((shape, shape.fit(offer, is_asked=False)) for shape in by_strength)
    shape, fit = next((shape, fit) for shape, fit in fits if fit is not None)  # a scan always fits
    return IndexSpec(shape, fit.equalities, fit.dimensions), fit.reason


def _choose_asked_index(name: str, offer: Indexable) -> IndexSpec:
    if name not in REGISTRY:
        raise QueryError("UNKNOWN_INDEX", f"index ({name!r}) must be one of {', '.join(REGISTRY)}")
    shape = REGISTRY[name]
    fit = shape.fit(offer, is_asked=True)
    if fit is None:
        raise QueryError(
            "INDEX_NOT_APPLICABLE",
            f"index {name!r} needs {shape.needs}; the condition has {len(offer.equalities)} equalities and "
            f"{len(offer.comparisons)} comparisons, {len(offer.bands)} of them bands",
        )
    return IndexSpec(shape, fit.equalities, fit.dimensions)
