"""Join-biclique (BiStream, SIGMOD 2015, section 3).

m units store R, n units store S, no replicas. A tuple is stored at one unit of its own side and
probes units of the opposite side: all of them (random routing), or only those of the subgroups that its
partners can be in (ContRand and content-sensitive routing, section 3.2.2). Inside a subgroup tuples are
spread by their hash, so a retried task repeats itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Places, Route, positive_pair, split
from thetastream.types import Role, Side

ROUTINGS = ("auto", "random", "hash", "range")


@dataclass(frozen=True)
class Biclique(Model):
    """m units for the left stream, n for the right; any condition.

    Parameters
    ----------
    units : (int, int) or int
        Units per side; one integer means both. Units are logical: any number of them is spread
        evenly over Spark's shuffle partitions.
    subgroups : (int, int) or int
        Subgroups that the units of each side form. With more than one, what the condition compares names
        the subgroup that stores a tuple and those it probes; inside a subgroup tuples are spread evenly.
        1 is random routing, as many as units is pure routing by content. Few, large ones stand more skew,
        and send more.
    routing : {"auto", "random", "hash", "range"}
        What names subgroups: ``hash`` of the values that equalities compare, or ``range`` of a band's keys,
        as in ``abs(a.x - b.x) <= 3``. ``auto`` is the hash where there is an equality, the range otherwise,
        and random where there is one subgroup.

    Raises
    ------
    QueryError
        BAD_UNITS, BAD_SUBGROUPS if a count is not a positive integer, or there are more subgroups than units;
        BAD_ROUTING if there is no such routing, or one that the number of subgroups contradicts.

    Examples
    --------
    >>> Biclique(units=2)
    Biclique(units=(2, 2))
    >>> Biclique((1, 3)).n_units
    4
    """

    units: tuple[int, int] | int = (1, 1)
    subgroups: tuple[int, int] | int = (1, 1)
    routing: str = "auto"
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
        if self.routing not in ROUTINGS:
            raise QueryError(
                "BAD_ROUTING", f"routing must be one of {', '.join(ROUTINGS)}, not {self.routing!r}"
            )
        if self.routing != "auto" and (self.routing == "random") != (max(subgroups) == 1):
            raise QueryError(
                "BAD_ROUTING",
                f"routing {self.routing!r} and {self.subgroups!r} subgroups contradict each other: "
                "one subgroup is random routing, several are routing by content",
            )
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "subgroups", subgroups)

    def __repr__(self) -> str:
        subgroups = f", subgroups={self.subgroups}" if self.needs_places else ""
        routing = f", routing={self.routing!r}" if self.routing != "auto" else ""
        return f"Biclique(units={self.units}{subgroups}{routing})"

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
    def needs_places(self) -> bool:
        return max(self.groups) > 1

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        start = (0, self.per_side[0])
        # 1. Store once on the own side: unit g + d * k is the k-th of subgroup g of d.
        units, d = self.per_side[side], self.groups[side]
        if units == 1:
            yield Route(start[side], Role.STORE, None)
        else:
            assert hashes.tuples is not None
            group = 0 if d == 1 else _places(hashes).own % d
            target = group + d * (hashes.tuples % _sizes(units, d)[group])
            for unit, rows in split(target, units):
                yield Route(start[side] + unit, Role.STORE, rows)
        # 2. Probe every unit of the subgroups of the opposite side that partners can be in.
        units, e = self.per_side[side.other], self.groups[side.other]
        found = [(0, None)] if e == 1 else _touched(_places(hashes), e)
        sizes = _sizes(units, e)
        for number, probing in found:
            for k in range(sizes[number]):
                yield Route(start[side.other] + number + e * k, Role.PROBE, probing)

    def describe(self) -> str:
        m, n = self.per_side
        d, e = self.groups
        routing = "random routing by tuple hash"
        if self.needs_places:
            by = {"auto": "content", "hash": "hash of the equality keys", "range": "range of a band's keys"}
            routing = f"{d} and {e} subgroups by {by[self.routing]}, spread inside"
        return f"biclique: {m} unit(s) store left, {n} store right, {routing}"


def _places(hashes: Hashes) -> Places:
    assert hashes.places is not None
    return hashes.places


def _touched(places: Places, groups: int) -> Iterator[tuple[int, Int64s]]:
    """(subgroup, rows whose partners may be in it): the stretch of places, dealt out in turn.

    >>> stretch = Places(np.array([5, 6]), np.array([4, 6]), np.array([5, 6]))
    >>> [(group, rows.tolist()) for group, rows in _touched(stretch, 3)]
    [(0, [1]), (1, [0]), (2, [0])]
    """
    if places.low is places.high:
        yield from split(places.low % groups, groups)
        return
    n_touched = places.high - places.low + 1
    for group in range(groups):
        rows = np.flatnonzero((group - places.low) % groups < n_touched)
        if len(rows):
            yield group, rows


def _sizes(units: int, groups: int) -> Int64s:
    """How many units each subgroup has.

    >>> _sizes(5, 2).tolist()
    [3, 2]
    """
    return (units - np.arange(groups) + groups - 1) // groups
