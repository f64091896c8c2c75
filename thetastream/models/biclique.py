"""Join-biclique (BiStream, SIGMOD 2015, section 3).

m units store R, n units store S, no replicas. A tuple is stored at one unit of its own side and
probes all units of the opposite side. Random routing by tuple hash, so a retried task repeats
itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from thetastream.errors import QueryError
from thetastream.models.base import Route, spread
from thetastream.types import Role, Side


@dataclass(frozen=True)
class Biclique:
    """m units for the left stream, n for the right; any condition.

    Parameters
    ----------
    units : (int, int) or int
        Units per side; one integer means both. Units are logical: any number of them is spread
        evenly over Spark's shuffle partitions.

    Raises
    ------
    QueryError
        BAD_UNITS if a count is not a positive integer.

    Examples
    --------
    >>> Biclique(units=2)
    Biclique(units=(2, 2))
    >>> Biclique((1, 3)).n_units
    4
    """

    units: tuple[int, int] | int = (1, 1)
    name: str = field(default="biclique", init=False, repr=False)

    def __post_init__(self) -> None:
        units = tuple(self.units) if isinstance(self.units, tuple | list) else (self.units, self.units)
        if len(units) != 2 or not all(
            isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in units
        ):
            raise QueryError(
                "BAD_UNITS", f"units must be a positive integer or a pair of them, not {self.units!r}"
            )
        object.__setattr__(self, "units", units)

    @property
    def per_side(self) -> tuple[int, int]:
        """Units of the left and of the right side."""
        assert isinstance(self.units, tuple)
        return self.units

    @property
    def n_units(self) -> int:
        return sum(self.per_side)

    @property
    def needs_hash(self) -> bool:
        return max(self.per_side) > 1

    def route(self, side: Side, n_rows: int, hashes: npt.NDArray[np.int64] | None) -> Iterator[Route]:
        start = (0, self.per_side[0])
        mine, theirs = self.per_side[side], self.per_side[side.other]
        # 1. Store once on the own side.
        if mine == 1:
            yield Route(start[side], Role.STORE, None)
        else:
            assert hashes is not None
            yield from spread(hashes, start[side], mine, Role.STORE)
        # 2. Probe every unit of the opposite side.
        for unit in range(theirs):
            yield Route(start[side.other] + unit, Role.PROBE, None)

    def describe(self) -> str:
        m, n = self.per_side
        return f"biclique: {m} unit(s) store left, {n} store right, random routing by tuple hash"
