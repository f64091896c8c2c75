"""Join-biclique (BiStream, SIGMOD 2015, section 3).

m units store R, n units store S, and there are no replicas. A tuple is stored at one unit of its own side and
probes units of the opposite side: all of them (random routing), or only those of the subgroups that its
partners can be in (ContRand and content-sensitive routing, section 3.2.2). Inside a subgroup, tuples are
spread by their hash, so a Spark task that is run again routes in the same way.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from thetastream.core.sides import Role, Side
from thetastream.errors import QueryError
from thetastream.models.base import Hashes, Model, Route, read_positive_pair
from thetastream.models.drawing import Drawing, columns
from thetastream.models.subgroups import (
    check_routing,
    count_units,
    describe_routing,
    find_touched,
    get_places,
    split_by_unit,
)


@dataclass(frozen=True)
class Biclique(Model):
    """The join-biclique: m units for the left stream and n units for the right one. It runs any condition.

    Parameters
    ----------
    units : (int, int) or int
        Units of each side. One integer means both sides. Units are logical: any number of them is spread
        evenly over Spark's shuffle partitions.
    subgroups : (int, int) or int
        Subgroups that the units of each side form. 1 is random routing. With more than one subgroup, the
        values that the condition compares name the subgroup that stores a tuple and the subgroups that it
        probes. Inside a subgroup, tuples are spread evenly. As many subgroups as units is pure routing by
        content. Few large subgroups tolerate more skew and send more copies.
    routing : {"auto", "random", "hash", "range"}
        What names subgroups: ``hash`` of the values that equalities compare, or ``range`` of the keys of a
        band, as in ``abs(a.x - b.x) <= 3``. ``auto`` is random routing for one subgroup. Otherwise it is the
        hash if the condition has an equality, and the range if it has none.

    Raises
    ------
    QueryError
        BAD_UNITS or BAD_SUBGROUPS if a count is not a positive integer, or if there are more subgroups than
        units. BAD_ROUTING if the routing is unknown or contradicts the number of subgroups.

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
    sizes: ClassVar[tuple[str, ...]] = ("units", "subgroups")

    def __post_init__(self) -> None:
        units, subgroups = read_positive_pair(self.units), read_positive_pair(self.subgroups)
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
        check_routing(self.routing, subgroups)
        object.__setattr__(self, "units", units)
        object.__setattr__(self, "subgroups", subgroups)

    @classmethod
    def of_units(cls, n_units: int, subgroups: Callable[[int], int]) -> "Iterator[Biclique]":
        """Yield every division into units that store left tuples and units that store right tuples.

        Each division comes without subgroups, and also with subgroups if they are allowed.

        >>> list(Biclique.of_units(2, lambda units: 1))
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
        return f"Biclique(units={self.units}{subgroups}{routing})"

    @property
    def per_side(self) -> tuple[int, int]:
        """The numbers of units of the left and of the right side."""
        assert isinstance(self.units, tuple)
        return self.units

    @property
    def groups(self) -> tuple[int, int]:
        """The numbers of subgroups of the left and of the right side."""
        assert isinstance(self.subgroups, tuple)
        return self.subgroups

    @property
    def n_units(self) -> int:
        return sum(self.per_side)

    @property
    def sends_probes_apart(self) -> bool:
        return True

    @property
    def needs_hash(self) -> bool:
        return max(self.per_side) > 1

    @property
    def needs_places(self) -> bool:
        return max(self.groups) > 1

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        start = (0, self.per_side[0])
        # 1. Store once on the own side.
        for unit, rows in split_by_unit(self.per_side[side], self.groups[side], hashes):
            yield Route(start[side] + unit, Role.STORE, rows)
        # 2. Probe every unit of the subgroups of the opposite side that partners can be in.
        units, e = self.per_side[side.other], self.groups[side.other]
        found = [(0, None)] if e == 1 else find_touched(get_places(hashes), e)
        sizes = count_units(units, e)
        for number, probing in found:
            for k in range(sizes[number]):
                yield Route(start[side.other] + number + e * k, Role.PROBE, probing)

    def stores(self, unit: int) -> Sequence[Side]:
        return (Side.LEFT if unit < self.per_side[0] else Side.RIGHT,)

    def list_groups(self) -> tuple[tuple[int, ...], ...]:
        """List the subgroups of the left side, and then those of the right side.

        >>> Biclique((3, 1), subgroups=(2, 1)).list_groups()
        ((0, 2), (1,), (3,))
        """
        (m, n), (d, e) = self.per_side, self.groups
        left = [tuple(range(number, m, d)) for number in range(d)]
        right = [tuple(range(m + number, m + n, e)) for number in range(e)]
        return (*left, *right)

    def spell_sizes(self, sizes: Sequence[int]) -> dict[str, Any]:
        """Return the units with which every subgroup of a side is as large as its largest one must be.

        >>> Biclique((3, 1), subgroups=(2, 1)).spell_sizes((2, 3, 4))
        {'units': (6, 4)}
        """
        d, e = self.groups
        return {"units": (d * max(sizes[:d]), e * max(sizes[d:]))}

    def shared_kind(self, unit: int) -> str | None:
        return None if self.needs_places else f"store {self.stores(unit)[0].name.lower()}, probed by all"

    def draw(self) -> Drawing:
        m, n = self.per_side
        return columns(["left"] * m, ["right"] * n)

    def describe(self) -> str:
        m, n = self.per_side
        d, e = self.groups
        routing = "random routing by tuple hash"
        if self.needs_places:
            routing = f"{d} and {e} subgroups by {describe_routing(self.routing)}, spread inside"
        return f"biclique: {m} unit(s) store left, {n} store right, {routing}"
