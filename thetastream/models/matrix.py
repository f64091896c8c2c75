"""Join-matrix (Stamos and Young 1993; the baseline of BiStream, SIGMOD 2015, section 2.2).

Units form a matrix. A tuple of R is kept by all units of one row, one of S by all units of one
column, so that every pair meets at one unit, whatever the condition. Each stores all it gets: the price
is a copy of every tuple per column, or row.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Route, positive_pair, split
from thetastream.types import Role, Side


@dataclass(frozen=True)
class Matrix(Model):
    """Rows of units that share left tuples, columns that share right ones; any condition.

    Parameters
    ----------
    rows, columns : int
        A left tuple is stored ``columns`` times, a right one ``rows`` times.

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

    def __post_init__(self) -> None:
        if positive_pair((self.rows, self.columns)) is None:
            raise QueryError(
                "BAD_UNITS",
                f"rows and columns must be positive integers, not {self.rows!r}, {self.columns!r}",
            )

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

    def _line(self, side: Side, number: int) -> range:
        """Units of a row, or of a column."""
        if side is Side.LEFT:
            return range(number * self.columns, (number + 1) * self.columns)
        return range(number, self.n_units, self.columns)

    def is_home(self, unit: int, side: Side) -> bool:
        return (unit % self.columns if side is Side.LEFT else unit // self.columns) == 0

    def describe(self) -> str:
        return (
            f"matrix: {self.rows} row(s) of {self.columns} unit(s); left tuples are stored {self.columns} "
            f"time(s), right ones {self.rows}"
        )
