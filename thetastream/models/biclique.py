"""Join-biclique (BiStream, SIGMOD 2015, section 3).

m units store R, n units store S, no replicas. A tuple is stored at one unit of its own side and
probes units of the opposite side: all of them (random routing), or, where the condition has an
equality, those of one subgroup (ContRand, section 3.2.2). Tuples are spread by their hash, so a retried
task repeats itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Route, positive_pair, split
from thetastream.types import Role, Side


@dataclass(frozen=True)
class Biclique(Model):
    """m units for the left stream, n for the right; any condition.

    Parameters
    ----------
    units : (int, int) or int
        Units per side; one integer means both. Units are logical: any number of them is spread
        evenly over Spark's shuffle partitions.
    subgroups : (int, int) or int
        Subgroups that the units of each side form. With more than one, the hash of a tuple's equality keys
        names the subgroup that stores it and the one it probes; inside a subgroup tuples are spread evenly.
        1 is random routing, as many as units is pure hash. Few, large ones stand more skew, and send more.

    Raises
    ------
    QueryError
        BAD_UNITS, BAD_SUBGROUPS if a count is not a positive integer, or there are more subgroups than units.

    Examples
    --------
    >>> Biclique(units=2)
    Biclique(units=(2, 2))
    >>> Biclique((1, 3)).n_units
    4
    """

    units: tuple[int, int] | int = (1, 1)
    subgroups: tuple[int, int] | int = (1, 1)
    name: ClassVar[str] = "biclique"

    def __post_init__(self) -> None:
        units, subgroups = positive_pair(self.units), positive_pair(self.subgroups)
        if units is None:
            raise QueryError(
                "BAD_UNITS", f"units must be a positive integer or a pair of them, not {self.units!r}"
            )
        if subgroups is None or subgroups[0] > units[0] or subgroups[1] > units[1]:
            raise QueryError(
                "BAD_SUBGROUPS",
                f"subgroups must be a positive integer or a pair of them, at most the units {units}, "
                f"not {self.subgroups!r}",
            )
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "subgroups", subgroups)

    def __repr__(self) -> str:
        subgroups = f", subgroups={self.subgroups}" if self.needs_keys else ""
        return f"Biclique(units={self.units}{subgroups})"

    @property
    def per_side(self) -> tuple[int, int]:
        """Units of the left and of the right side."""
        assert isinstance(self.units, tuple)
        return self.units

    @property
    def groups(self) -> tuple[int, int]:
        """Subgroups of the left and of the right side."""
        assert isinstance(self.subgroups, tuple)
        return self.subgroups

    @property
    def n_units(self) -> int:
        return sum(self.per_side)

    @property
    def needs_hash(self) -> bool:
        return max(self.per_side) > 1

    @property
    def needs_keys(self) -> bool:
        return max(self.groups) > 1

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        start = (0, self.per_side[0])
        # 1. Store once on the own side: unit g + d * k is the k-th of subgroup g of d.
        units, d = self.per_side[side], self.groups[side]
        if units == 1:
            yield Route(start[side], Role.STORE, None)
        else:
            assert hashes.tuples is not None
            group = 0 if d == 1 else _keys(hashes) % d
            target = group + d * (hashes.tuples % _sizes(units, d)[group])
            for unit, rows in split(target, units):
                yield Route(start[side] + unit, Role.STORE, rows)
        # 2. Probe every unit of a subgroup of the opposite side.
        units, e = self.per_side[side.other], self.groups[side.other]
        found = [(0, None)] if e == 1 else split(_keys(hashes) % e, e)
        sizes = _sizes(units, e)
        for number, probing in found:
            for k in range(sizes[number]):
                yield Route(start[side.other] + number + e * k, Role.PROBE, probing)

    def describe(self) -> str:
        m, n = self.per_side
        d, e = self.groups
        routing = "random routing by tuple hash"
        if self.needs_keys:
            routing = f"ContRand: {d} and {e} subgroups by hash of the equality keys, spread inside"
        return f"biclique: {m} unit(s) store left, {n} store right, {routing}"


def _keys(hashes: Hashes) -> Int64s:
    assert hashes.keys is not None
    return hashes.keys


def _sizes(units: int, groups: int) -> Int64s:
    """How many units each subgroup has.

    >>> _sizes(5, 2).tolist()
    [3, 2]
    """
    return (units - np.arange(groups) + groups - 1) // groups
