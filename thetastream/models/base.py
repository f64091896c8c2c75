"""A model is a pure router: which unit stores a tuple, which units probe with it.

Routers see hashes, never tuples, clocks or Spark. All units run the same code
(``thetastream.joiner.unit``); nothing but the routes differs between models.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thetastream.types import Role, Side


class Route(NamedTuple):
    """Some rows of a block go to one unit in one role."""

    unit: int
    role: Role
    rows: npt.NDArray[np.int64] | None
    """Positions in the block; None means all of them."""


class Model(Protocol):
    """What a user passes as ``model=``: frozen, printable, picklable."""

    @property
    def name(self) -> str:
        """Registry name."""

    @property
    def n_units(self) -> int:
        """Units, numbered from 0."""

    @property
    def needs_hash(self) -> bool:
        """Whether ``route`` looks at the hashes."""

    def route(self, side: Side, n_rows: int, hashes: npt.NDArray[np.int64] | None) -> Iterator[Route]:
        """Where the rows of one block go; ``hashes`` is one int64 per tuple."""

    def describe(self) -> str:
        """One line for ``explain``."""


def spread(hashes: npt.NDArray[np.int64], first_unit: int, n_units: int, role: Role) -> Iterator[Route]:
    """Split rows over ``n_units`` units by hash, one route each, in order of the rows."""
    target = hashes % n_units
    order = np.argsort(target, kind="stable")
    cuts = np.searchsorted(target[order], np.arange(n_units + 1))
    for unit in range(n_units):
        if cuts[unit] < cuts[unit + 1]:
            yield Route(first_unit + unit, role, order[cuts[unit] : cuts[unit + 1]])
