"""Routes: which rows of a block go to which unit in which role, and what a router knows of the rows."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.core.sides import Role


class Route(NamedTuple):
    """Some rows of a block go to one unit in one role."""

    unit: int
    role: Role
    rows: Int64s | None
    """Positions of the rows in the block; None means all rows."""


class Places(NamedTuple):
    """The place of each tuple, and the interval of places in which its partners lie; int64 per row.

    A tuple has partners only at the places from ``low`` to ``high``, both included.
    """

    own: Int64s
    low: Int64s
    high: Int64s


class Hashes:
    """The properties of the rows of a block that routers use. Each is computed when a router first reads it.

    Parameters
    ----------
    tuples : callable
        It returns the hash of each tuple, int64 of shape (n,).
    places : callable, optional
        It returns the places of the tuples. A model that ``needs_places`` always has it.

    Examples
    --------
    >>> Hashes(lambda: np.array([7, 9])).tuples % 2
    array([1, 1])
    """

    def __init__(self, tuples: Callable[[], Int64s], places: Callable[[], Places] | None = None) -> None:
        self._find_tuples, self._find_places = tuples, places

    @cached_property
    def tuples(self) -> Int64s:
        """The number of each tuple, which spreads tuples evenly, also equal ones, and in the same way when a
        Spark task is run again (``thetastream.engine.spreading``)."""
        return self._find_tuples()

    @cached_property
    def places(self) -> Places:
        """The places of the tuples, which follow from the values that the condition compares, for routing by
        content."""
        assert self._find_places is not None
        return self._find_places()


def split(targets: Int64s, n_targets: int) -> Iterator[tuple[int, Int64s]]:
    """Yield (target, positions) for every target that has rows. Positions are in the order of the rows.

    >>> [(target, rows.tolist()) for target, rows in split(np.array([2, 0, 2]), 3)]
    [(0, [1]), (2, [0, 2])]
    """
    order = np.argsort(targets, kind="stable")
    cuts = np.searchsorted(targets[order], np.arange(n_targets + 1))
    for target in range(n_targets):
        if cuts[target] < cuts[target + 1]:
            yield target, order[cuts[target] : cuts[target + 1]]
