"""Join-matrix (Stamos and Young 1993; the baseline of BiStream, SIGMOD 2015, section 2.2).

Units form a matrix. All units of one row store a tuple of R, and all units of one column store a tuple of S.
Therefore every pair meets at exactly one unit, whatever the condition. The price is the number of copies: a
tuple of R is stored once per column, and a tuple of S once per row.

With subgroups, the values that the condition compares name the rows or columns that a tuple belongs to. A
tuple goes only to those units of its row or column that its partners can be at
(``thetastream.models.subgroups``).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Places, Route, read_positive_pair
from thetastream.models.drawing import Drawing, grid
from thetastream.models.subgroups import (
    Routing,
    check_routing,
    count_units,
    describe_routing,
    find_touched,
    split_by_unit,
)


@dataclass(frozen=True)
class Matrix(Model):
    """The join-matrix: a row of units stores a left tuple, a column a right one. It runs any condition.

    Parameters
    ----------
    rows, columns : int
        A left tuple is stored ``columns`` times, and a right tuple is stored ``rows`` times. With subgroups,
        they are stored fewer times.
    subgroups : (int, int) or int
        The numbers of subgroups that the rows and the columns form. An integer stands for both; it is reduced
        to the number of rows or columns if that is smaller. With more than one subgroup, the values that the
        condition compares name the subgroup of a tuple. It is copied only to the subgroups that its partners
        can be in. If there are as many subgroups as rows or columns, routing is purely by content, and the
        heaviest key may fill one unit.
    routing : {"auto", "random", "hash", "range"}
        What names subgroups, as in ``Biclique``.

    Raises
    ------
    QueryError
        BAD_UNITS or BAD_SUBGROUPS if a count is not a positive integer, or if there are more subgroups than
        rows or columns. BAD_ROUTING if the routing is unknown or contradicts the number of subgroups.

    Examples
    --------
    >>> Matrix(rows=2, columns=3).n_units
    6
    >>> Matrix(4, 1, subgroups=4)
    Matrix(rows=4, columns=1, subgroups=(4, 1))
    """

    rows: int = 1
    columns: int = 1
    subgroups: tuple[int, int] | int = (1, 1)
    routing: Routing = "auto"
    name: ClassVar[str] = "matrix"
    sizes: ClassVar[tuple[str, ...]] = ("rows", "columns")

    def __post_init__(self) -> None:
        if read_positive_pair((self.rows, self.columns)) is None:
            raise QueryError(
                "BAD_UNITS",
                f"rows and columns must be positive integers, not {self.rows!r}, {self.columns!r}",
            )
        given, lines = read_positive_pair(self.subgroups), (self.rows, self.columns)
        if given is not None and isinstance(self.subgroups, int) and given[0] <= max(lines):
            given = min(given[0], lines[0]), min(given[1], lines[1])
        if given is None or given[0] > lines[0] or given[1] > lines[1]:
            raise QueryError(
                "BAD_SUBGROUPS",
                "subgroups must be a positive integer or a pair of them, at most the rows and the columns "
                f"{lines}, not {self.subgroups!r}",
            )
        check_routing(self.routing, given)
        object.__setattr__(self, "subgroups", given)

    @classmethod
    def variants(
        cls, n_units: int, subgroups: Callable[[int], int], needs_partners: bool = False
    ) -> "Iterator[Matrix]":
        """Yield every rectangle of ``n_units`` units, and the matrices of one row or one column that bring
        partners together by content.

        >>> list(Matrix.variants(2, lambda units: 1))
        [Matrix(rows=1, columns=2), Matrix(rows=2, columns=1)]
        >>> [model.subgroups for model in Matrix.variants(3, lambda units: 1, needs_partners=True)]
        [(1, 1), (1, 1), (3, 1), (1, 3), (3, 1)]
        """
        yield from (cls(rows, n_units // rows) for rows in range(1, n_units + 1) if n_units % rows == 0)
        if needs_partners and n_units > 1:
            yield cls(n_units, 1, (n_units, 1))
            yield cls(1, n_units, (1, n_units))
            yield cls(n_units, 1, (n_units, 1), "hash")

    def __repr__(self) -> str:
        subgroups = f", subgroups={self.subgroups}" if self.needs_places else ""
        routing = f", routing={self.routing!r}" if self.routing != "auto" else ""
        return f"Matrix(rows={self.rows}, columns={self.columns}{subgroups}{routing})"

    @property
    def n_subgroups(self) -> tuple[int, int]:
        """The numbers of subgroups of the rows and of the columns."""
        assert isinstance(self.subgroups, tuple)
        return self.subgroups

    @property
    def n_units(self) -> int:
        return self.rows * self.columns

    @property
    def needs_places(self) -> str | None:
        return self.routing if max(self.n_subgroups) > 1 else None

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        lines = self.rows, self.columns
        across, groups = lines[side.other], self.n_subgroups[side.other]
        sizes = count_units(across, groups)
        # 1. Find the row of a left tuple, or the column of a right one.
        for line, rows in split_by_unit(lines[side], self.n_subgroups[side], hashes):
            units = self._line(side, line)
            # 2. Find the subgroups of this line that partners can be in. Only the first copy is counted.
            for group, role, touching in _find_copies(hashes, groups, rows):
                for k in range(sizes[group]):
                    yield Route(units[group + groups * k], Role.COPY if k else role, touching)

    def first_copies(
        self, unit: int, side: Side, n_rows: int, places: Places | None
    ) -> npt.NDArray[np.bool_]:
        # The first copy of a tuple is the one that ``route`` counts.
        groups = self.n_subgroups[side.other]
        across = unit % self.columns if side is Side.LEFT else unit // self.columns
        if groups == 1:
            return np.full(n_rows, across == 0)
        assert places is not None
        is_first: npt.NDArray[np.bool_] = places.low % groups == across
        return is_first

    def probe_first_copies(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        # First copies of right tuples are in the first rows, one for each subgroup; those of left tuples are
        # in the first columns.
        for line in range(self.n_subgroups[side]):
            for unit in self._line(side, line):
                yield Route(unit, Role.PROBE, None)

    def sees_partners(self, side: Side) -> bool:
        across = (self.rows, self.columns)[side.other]
        # With hashes, a tuple and its partners have one place, and so one subgroup.
        return across == 1 or (self.routing == "hash" and self.n_subgroups[side.other] == across)

    def resized(self, sizes: Sequence[int]) -> "Matrix":
        """Return the smallest matrix of nearly equal sides with that number of units.

        A matrix of several units in one row or one column keeps this form, because a join may need it.

        >>> Matrix().resized((5,)), Matrix(2, 1).resized((5,))
        (Matrix(rows=2, columns=3), Matrix(rows=5, columns=1))
        """
        if self.n_units > 1 and 1 in (self.rows, self.columns):
            n = max(sizes[0], *self.n_subgroups)
            return replace(self, rows=n if self.columns == 1 else 1, columns=n if self.rows == 1 else 1)
        rows = max(isqrt(sizes[0]), self.n_subgroups[0])
        return replace(self, rows=rows, columns=max(-(-sizes[0] // rows), self.n_subgroups[1]))

    def _line(self, side: Side, number: int) -> range:
        """List the units of a row for the left side, or of a column for the right side."""
        if side is Side.LEFT:
            return range(number * self.columns, (number + 1) * self.columns)
        return range(number, self.n_units, self.columns)

    def draw(self) -> Drawing:
        return grid(self.rows, self.columns, "store and probe")

    def describe(self) -> str:
        shape = f"matrix: {self.rows} row(s) of {self.columns} unit(s)"
        if self.needs_places:
            d, e = self.n_subgroups
            by = describe_routing(self.routing)
            return f"{shape}; {d} and {e} subgroups by {by}, copies only where partners can be"
        return f"{shape}; left tuples are stored {self.columns} time(s), right ones {self.rows}"


def _find_copies(
    hashes: Hashes, groups: int, rows: Int64s | None
) -> Iterator[tuple[int, Role, Int64s | None]]:
    """Yield (subgroup, role, which of ``rows`` go there). The first subgroup of a tuple counts it."""
    if groups == 1:
        yield 0, Role.BOTH, rows
        return
    places = hashes.places
    if rows is not None:
        low = places.low[rows]
        high = low if places.low is places.high else places.high[rows]
        places = Places(places.own[rows], low, high)
    for group, found in find_touched(places, groups):
        is_first = places.low[found] % groups == group
        for role, chosen in ((Role.BOTH, found[is_first]), (Role.COPY, found[~is_first])):
            if len(chosen):
                yield group, role, chosen if rows is None else rows[chosen]
