"""Routes: which rows of a block go to which unit in which role, and what a router knows of the rows."""

from collections.abc import Iterator
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


class Hashes(NamedTuple):
    """The properties of the rows of a block that routers use."""

    tuples: Int64s | None = None
    """The hash of each whole tuple. It spreads tuples evenly, and in the same way when a Spark task is run
    again."""
    places: Places | None = None
    """The places of the tuples, which follow from the values that the condition compares, for routing by
    content."""


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
