"""Join-biclique (BiStream, SIGMOD 2015, section 3).

m units store R, n units store S, and there are no replicas. A tuple is stored at one unit of its own side and
probes units of the opposite side: all of them (random routing), or only those of the subgroups that its
partners can be in (ContRand and content-sensitive routing, section 3.2.2). Inside a subgroup, tuples are
spread by their numbers (``thetastream.engine.spreading``), so a Spark task that is run again routes in the
same way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

import numpy as np

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Route, is_positive, read_positive_pair, split
from thetastream.models.capacities import read_capacities, share_turns
from thetastream.models.drawing import Drawing, columns
from thetastream.models.subgroups import (
    Routing,
    check_routing,
    count_units,
    describe_routing,
    find_touched,
    split_by_unit,
)

Units: TypeAlias = int | tuple[int, ...]
"""The units of one side: their number, or the number of units of each subgroup."""


def _read_units(given: object) -> tuple[Units, Units] | None:
    """Read the units of both sides; None if they are something else."""
    pair = tuple(given) if isinstance(given, tuple | list) else (given, given)
    if len(pair) != 2:
        return None
    left, right = (tuple(each) if isinstance(each, list) else each for each in pair)
    for each in (left, right):
        numbers = each if isinstance(each, tuple) else (each,)
        if not numbers or not all(map(is_positive, numbers)):
            return None
    return left, right


def _count(units: Units) -> int:
    return sum(units) if isinstance(units, tuple) else units


def _even_out(units: Units, n_subgroups: int) -> Units:
    """Return the number of units if an even division forms the same subgroups."""
    if isinstance(units, tuple) and units == tuple(count_units(sum(units), n_subgroups).tolist()):
        return sum(units)
    return units


@dataclass(frozen=True)
class Biclique(Model):
    """The join-biclique: m units for the left stream and n units for the right one. It runs any condition.

    Parameters
    ----------
    units : (int, int) or int
        Units of each side. One integer means both sides. Units are logical: any number of them is spread
        evenly over Spark's shuffle partitions. The units of a side form its subgroups evenly. In place of a
        number, a side may have a tuple with the number of units of each subgroup, as in ``((3, 1), 2)``.
    subgroups : (int, int) or int
        Subgroups that the units of each side form. 1 is random routing. With more than one subgroup, the
        values that the condition compares name the subgroup that stores a tuple and the subgroups that it
        probes. Inside a subgroup, tuples are spread evenly. If there are as many subgroups as units, routing
        is purely by content. Few large subgroups tolerate more skew and send more copies.
    routing : {"auto", "random", "hash", "range"}
        What names subgroups: ``hash`` of the values that equalities compare, or ``range`` of the keys of a
        band, as in ``abs(a.x - b.x) <= 3``. ``auto`` is random routing for one subgroup. Otherwise it is the
        hash if the condition has an equality, and the range if it has none.
    capacities : tuple of float, optional
        How strong the units are: a positive number for each unit, first those of the left side. Of the tuples
        of its subgroup, a unit stores a share in proportion to its number. Units are equally strong by
        default. ``th.control(query).balance()`` measures these numbers.

    Raises
    ------
    QueryError
        BAD_UNITS or BAD_SUBGROUPS if a count is not a positive integer, or if there are more subgroups than
        units. BAD_ROUTING if the routing is unknown or contradicts the number of subgroups. BAD_CAPACITIES if
        there is not one positive number for each unit.

    Examples
    --------
    >>> Biclique(units=2)
    Biclique(units=(2, 2))
    >>> Biclique((1, 3)).n_units
    4
    >>> Biclique(((3, 1), 2))
    Biclique(units=((3, 1), 2), subgroups=(2, 1))
    """

    units: tuple[Units, Units] | int = (1, 1)
    subgroups: tuple[int, int] | int = (1, 1)
    routing: Routing = "auto"
    capacities: tuple[float, ...] | None = None
    name: ClassVar[str] = "biclique"
    sizes: ClassVar[tuple[str, ...]] = ("units", "subgroups", "capacities")

    def __post_init__(self) -> None:
        units, subgroups = _read_units(self.units), read_positive_pair(self.subgroups)
        if units is None:
            raise QueryError(
                "BAD_UNITS",
                "units must be a positive integer, or a pair of them for left and right, as in units=(4, 2); "
                f"in the pair, a tuple such as (3, 1) gives the units of each subgroup; not {self.units!r}",
            )
        given = [len(each) if isinstance(each, tuple) else None for each in units]
        if subgroups == (1, 1):
            subgroups = given[0] or 1, given[1] or 1
        totals = [_count(each) for each in units]
        if (
            subgroups is None
            or any(n > total for n, total in zip(subgroups, totals, strict=True))
            or any(n not in (None, chosen) for n, chosen in zip(given, subgroups, strict=True))
        ):
            raise QueryError(
                "BAD_SUBGROUPS",
                f"subgroups must be a positive integer or a pair of them, at most the units {units}, "
                f"not {self.subgroups!r}",
            )
        left, right = (_even_out(each, n) for each, n in zip(units, subgroups, strict=True))
        units = left, right
        check_routing(self.routing, subgroups)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "subgroups", subgroups)
        object.__setattr__(self, "capacities", read_capacities(self.capacities, self.n_units))

    @classmethod
    def variants(
        cls, n_units: int, subgroups: Callable[[int], int], needs_partners: bool = False
    ) -> "Iterator[Biclique]":
        """Yield every division into units that store left tuples and units that store right tuples.

        Each division comes without subgroups, and also with subgroups if they are allowed.

        >>> list(Biclique.variants(2, lambda units: 1))
        [Biclique(units=(1, 1))]
        """
        for m in range(1, n_units):
            n = n_units - m
            yield cls((m, n))
            groups = subgroups(m), subgroups(n)
            if max(groups) > 1:
                yield cls((m, n), groups)

    def __repr__(self) -> str:
        subgroups = f", subgroups={self.subgroups}" if self.needs_places else ""
        routing = f", routing={self.routing!r}" if self.routing != "auto" else ""
        capacities = f", capacities={self.capacities}" if self.capacities is not None else ""
        return f"Biclique(units={self.units}{subgroups}{routing}{capacities})"

    @property
    def per_side(self) -> tuple[int, int]:
        """The numbers of units of the left and of the right side."""
        assert isinstance(self.units, tuple)
        left, right = self.units
        return _count(left), _count(right)

    @property
    def n_subgroups(self) -> tuple[int, int]:
        """The numbers of subgroups of the left and of the right side."""
        assert isinstance(self.subgroups, tuple)
        return self.subgroups

    @property
    def n_units(self) -> int:
        return sum(self.per_side)

    @property
    def needs_places(self) -> str | None:
        return self.routing if max(self.n_subgroups) > 1 else None

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        # 1. Store once on the own side.
        start = self.per_side[0] if side is Side.RIGHT else 0
        for unit, rows in self._split(side, hashes):
            yield Route(start + unit, Role.STORE, rows)
        # 2. Probe every unit of the subgroups of the opposite side that partners can be in.
        e = self.n_subgroups[side.other]
        found = [(0, None)] if e == 1 else find_touched(hashes.places, e)
        groups = self._list_side(side.other)
        for number, probing in found:
            for unit in groups[number]:
                yield Route(unit, Role.PROBE, probing)

    def _split(self, side: Side, hashes: Hashes) -> Iterator[tuple[int, Int64s | None]]:
        """Yield (number of a unit among those of its side, rows that it stores)."""
        assert isinstance(self.units, tuple)
        units = self.units[side]
        if self.capacities is not None and self.per_side[side] > 1:
            yield from self._split_by_capacity(side, hashes)
            return
        if not isinstance(units, tuple):
            yield from split_by_unit(units, self.n_subgroups[side], hashes)
            return
        sizes = np.array(units)
        group = hashes.places.own % len(sizes)
        first = np.cumsum(sizes) - sizes
        yield from split(first[group] + hashes.tuples % sizes[group], int(sizes.sum()))

    def _split_by_capacity(self, side: Side, hashes: Hashes) -> Iterator[tuple[int, Int64s]]:
        """Yield what ``_split`` yields, if units are not equally strong."""
        assert self.capacities is not None
        groups, numbers = self._list_side(side), hashes.tuples
        start = self.per_side[0] if side is Side.RIGHT else 0
        group = np.zeros(len(numbers), dtype=np.int64)
        if len(groups) > 1:
            group = hashes.places.own % len(groups)
        units = np.empty(len(numbers), dtype=np.int64)
        for number, members in enumerate(groups):
            turns = share_turns(tuple(self.capacities[unit] for unit in members))
            rows = np.flatnonzero(group == number)
            units[rows] = np.array(members)[turns[numbers[rows] % len(turns)]] - start
        yield from split(units, self.per_side[side])

    def _list_side(self, side: Side) -> tuple[tuple[int, ...], ...]:
        """List the units of each subgroup of a side.

        Of d even subgroups, unit g + d k is the k-th unit of subgroup g. Units of uneven subgroups are
        numbered subgroup by subgroup.
        """
        assert isinstance(self.units, tuple)
        start = self.per_side[0] if side is Side.RIGHT else 0
        units, d = self.units[side], self.n_subgroups[side]
        if not isinstance(units, tuple):
            return tuple(tuple(range(start + number, start + units, d)) for number in range(d))
        ends = [start + sum(units[: number + 1]) for number in range(d)]
        return tuple(tuple(range(end - n, end)) for end, n in zip(ends, units, strict=True))

    def stores(self, unit: int) -> Sequence[Side]:
        return (Side.LEFT if unit < self.per_side[0] else Side.RIGHT,)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The subgroups of the left side, and then those of the right side.

        >>> Biclique((3, 1), subgroups=(2, 1)).groups, Biclique(((1, 2), 1)).groups
        (((0, 2), (1,), (3,)), ((0,), (1, 2), (3,)))
        """
        return (*self._list_side(Side.LEFT), *self._list_side(Side.RIGHT))

    def resized(self, sizes: Sequence[int]) -> "Biclique":
        """Return the model with that number of units in each subgroup.

        >>> Biclique((3, 1), subgroups=(2, 1)).resized((2, 3, 4))
        Biclique(units=((2, 3), 4), subgroups=(2, 1))
        """
        d = self.n_subgroups[0]
        left, right = (one[0] if len(one) == 1 else tuple(one) for one in (sizes[:d], sizes[d:]))
        return self.with_sizes(units=(left, right))

    def with_sizes(self, **sizes: object) -> "Biclique":
        """Return the model with other sizes. Other units are equally strong, unless capacities are given.

        >>> model = Biclique((2, 1), capacities=(2, 1, 1))
        >>> model.with_sizes(units=(3, 1)), model.with_sizes(capacities=(1, 3, 1))
        (Biclique(units=(3, 1)), Biclique(units=(2, 1), capacities=(1, 3, 1)))
        """
        capacities = self.capacities if sizes.keys() <= {"capacities"} else None
        return replace(self, **{"capacities": capacities, **sizes})  # type: ignore[arg-type]

    def shared_kind(self, unit: int) -> str | None:
        (side,) = self.stores(unit)
        n_subgroups, probes = self.n_subgroups[side], "all"
        if n_subgroups > 1:
            group = next(n for n, units in enumerate(self._list_side(side)) if unit in units)
            probes = f"those of subgroup {group} of {n_subgroups} by {self.routing}"
        return f"store {side.name.lower()}, probed by {probes}"

    def draw(self) -> Drawing:
        m, n = self.per_side
        return columns(["left"] * m, ["right"] * n)

    def describe(self) -> str:
        m, n = self.per_side
        d, e = self.n_subgroups
        routing = "random routing by tuple hash"
        if self.needs_places:
            routing = f"{d} and {e} subgroups by {describe_routing(self.routing)}, spread inside"
        if self.capacities is not None:
            routing += f", shares as {', '.join(f'{one:g}' for one in self.capacities)}"
        return f"biclique: {m} unit(s) store left, {n} store right, {routing}"
