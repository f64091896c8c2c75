"""Join-matrix (Stamos and Young 1993; the baseline of BiStream, SIGMOD 2015, section 2.2).

Units form a matrix. All units of one row store a tuple of R, and all units of one column store a tuple of S.
Therefore every pair meets at exactly one unit, whatever the condition. The price is the number of copies: a
tuple of R is stored once per column, and a tuple of S once per row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.errors import QueryError
from thetastream.models.base import Hashes, Model, Route, read_positive_pair, split
from thetastream.models.drawing import Drawing, grid


@dataclass(frozen=True)
class Matrix(Model):
    """The join-matrix: a row of units stores a left tuple, a column a right one. It runs any condition.

    Parameters
    ----------
    rows, columns : int
        A left tuple is stored ``columns`` times, and a right tuple is stored ``rows`` times.

    Raises
    ------
    QueryError
        BAD_UNITS if a count is not a positive integer.

    Examples
    --------
    >>> Matrix(rows=2, columns=3).n_units
    6
    """

    rows: int = 1
    columns: int = 1
    name: ClassVar[str] = "matrix"
    sizes: ClassVar[tuple[str, ...]] = ("rows", "columns")

    def __post_init__(self) -> None:
        if read_positive_pair((self.rows, self.columns)) is None:
            raise QueryError(
                "BAD_UNITS",
                f"rows and columns must be positive integers, not {self.rows!r}, {self.columns!r}",
            )

    @classmethod
    def of_units(cls, n_units: int, subgroups: Callable[[int], int]) -> "Iterator[Matrix]":
        """Yield every rectangle of ``n_units`` units.

        >>> list(Matrix.of_units(2, lambda units: 1))
        [Matrix(rows=1, columns=2), Matrix(rows=2, columns=1)]
        """
        yield from (cls(rows, n_units // rows) for rows in range(1, n_units + 1) if n_units % rows == 0)

    @property
    def n_units(self) -> int:
        return self.rows * self.columns

    @property
    def needs_hash(self) -> bool:
        return self.n_units > 1

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        n = (self.rows, self.columns)[side]
        found: Iterator[tuple[int, Int64s | None]] = iter([(0, None)])
        if n > 1:
            assert hashes.tuples is not None
            found = split(hashes.tuples % n, n)
        for line, positions in found:
            for unit in self._line(side, line):
                yield Route(unit, Role.BOTH, positions)

    def sees_partners(self, side: Side) -> bool:
        return (self.columns if side is Side.LEFT else self.rows) == 1

    def _line(self, side: Side, number: int) -> range:
        """List the units of a row for the left side, or of a column for the right side."""
        if side is Side.LEFT:
            return range(number * self.columns, (number + 1) * self.columns)
        return range(number, self.n_units, self.columns)

    def is_home(self, unit: int, side: Side) -> bool:
        return (unit % self.columns if side is Side.LEFT else unit // self.columns) == 0

    def draw(self) -> Drawing:
        return grid(self.rows, self.columns, "store and probe")

    def describe(self) -> str:
        return (
            f"matrix: {self.rows} row(s) of {self.columns} unit(s); left tuples are stored {self.columns} "
            f"time(s), right ones {self.rows}"
        )
