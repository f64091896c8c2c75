"""The protocol of aggregate functions: what units measure, and how Spark merges it.

    SELECT avg(s.x)
    units:   sum(s.x) AS m0, count(s.x) AS m1        two measures; a view has one row per group and epoch
    Spark:   sum(m0) / sum(m1)                       the merge: SQL over the rows of all views

A *measure function* folds a column of matches into columns of a view, and it merges rows of views into fewer
rows. An *aggregate* writes the SQL that merges views, and it requests the measures that this SQL reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.aggregates.operands import Operand
from thetastream.core.cancellation import Signs

Call = tuple[Any, str]
"""A column (or an empty list for none) and the name of the Arrow function that is applied to it."""
Column = Any
"""An Arrow column: an array or a chunked array."""


class NotFoldable(Exception):
    """Units cannot fold the matches, so the matches leave the units as pairs. The message says why."""


# The measures of units


class Accumulator:
    """One measure of one view. Arrow does the grouping; this class prepares its input and its output.

    Parameters
    ----------
    name : str
        Name of the column that ``read`` returns.
    of_matches : str
        The Arrow function that is applied to that column. Where Arrow has no suitable function, it is
        ``list``, and ``count`` receives the values of each group.
    of_views : str
        The Arrow function that merges each column of a view.
    parts : sequence of str
        Suffixes that, appended to the name, give the names of the view's columns.
    """

    def __init__(self, name: str, of_matches: str, of_views: str, parts: Sequence[str] = ("",)) -> None:
        self.columns = tuple(f"{name}{part}" for part in parts)
        """The names of this measure's columns in the view."""
        self.of_matches: Sequence[Call] = ((name, of_matches),)
        self.of_views: Sequence[Call] = tuple((column, of_views) for column in self.columns)

    def read(self, column: pa.Array) -> pa.Array:
        """Convert the column of matches to a type for which the Arrow functions give Spark's answer."""
        return column

    def read_signed(self, column: pa.Array | None, signs: Signs) -> pa.Array:
        """Convert the column of matches that may be deleted: a value of a deleted match is negated.

        ``signs`` has 1 for each inserted match, and -1 for each deleted one.
        """
        assert column is not None
        column = self.read(column)
        return pc.if_else(pa.array(signs < 0), pc.negate(column), column)

    def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        """Compute ``columns`` from the results of ``of_matches``."""
        return found

    def merge(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        """Compute ``columns`` from the results of ``of_views``."""
        return found

    def show(self, column: pa.ChunkedArray) -> Column:
        """Convert a column of the view to the type in which it leaves the unit."""
        return column


class MeasureFunction(ABC):
    """It folds a column of matches into columns of a view, and it merges rows of views into fewer rows.

    It is pickled into the plan, as an index shape is (``thetastream.index.Shape``), so workers need no
    registry. Two measure functions are equal if they have the same class name and the same fields. The text
    that ``repr``
    returns is part of a checkpoint's identity, so it must not change.
    """

    name: ClassVar[str]
    """The name that explain shows."""
    parts: ClassVar[tuple[str, ...]] = ("",)
    """Suffixes that, appended to a measure's name, give the names of its columns."""

    @abstractmethod
    def types(self, type_: str) -> Sequence[str | None]:
        """Return the Spark type of each column of the view, for a measured column of type ``type_``.

        None means that the view's column has the type of the measured column.
        """

    @abstractmethod
    def build_accumulator(self, name: str) -> Accumulator:
        """Create the accumulator of this measure for one view."""

    def build_signed(self, name: str) -> Accumulator:
        """Create the accumulator for matches that may be deleted: it adds up what ``read_signed`` returns.

        Only aggregates that take deletes need it.
        """
        return self.build_accumulator(name)

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a view that hold a measure of this name.

        >>> from thetastream.aggregates.moments import Moments
        >>> Moments().columns("m1")
        ('m1_n', 'm1_mean', 'm1_m2')
        """
        return tuple(f"{name}{part}" for part in self.parts)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeasureFunction) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


@dataclass(frozen=True)
class Measure:
    """A measure function over an operand. Without an operand it counts rows and reads no values."""

    function: MeasureFunction
    operand: Operand | None = None


# The merge in Spark


class AggregateCall(Protocol):
    """A call of an aggregate in a statement.

    The aggregate reads its arguments and requests measures from it.
    """

    @property
    def name(self) -> str:
        """The name by which the statement calls the aggregate, in upper case."""

    @property
    def is_every_match(self) -> bool:
        """Whether the argument is ``*`` and the call has no FILTER."""

    @property
    def value(self) -> str:
        """SQL of the first argument. It is NULL for matches that the FILTER rejects."""

    @property
    def presence(self) -> str:
        """SQL that is NULL where ``value`` is NULL, and has a small value elsewhere."""

    @property
    def type(self) -> str:
        """Spark type of ``value``."""

    @property
    def is_ansi(self) -> bool:
        """Whether an overflow is an error in Spark. If not, a sum is then NULL."""

    @property
    def has_deletes(self) -> bool:
        """Whether matches may be deleted. A sum of no values is then 0 in the views, and NULL in Spark."""

    @property
    def options(self) -> Sequence[str]:
        """The texts of the other arguments."""

    def measure(self, function: MeasureFunction, text: str | None = None) -> tuple[str, ...]:
        """Return the columns of the views that hold a measure over SQL ``text``.

        A measure that is requested several times is computed once.

        Raises
        ------
        NotFoldable
            If the text reads both streams and is no calculation that units can do.
        """

    def type_of(self, text: str) -> str | None:
        """Return the Spark type of SQL over the streams that ``value`` reads."""


class Aggregate(ABC):
    """A SQL aggregate function that units can fold."""

    names: ClassVar[tuple[str, ...]]
    """Its SQL names, in upper case."""
    most_arguments: ClassVar[int] = 1
    """The largest number of arguments that it takes."""
    takes_star: ClassVar[bool] = False
    """Whether its argument may be ``*``."""
    takes_deletes: ClassVar[bool] = False
    """Whether a deleted match can be taken out of it, by the matches that were inserted and deleted alone."""

    @abstractmethod
    def merge(self, call: AggregateCall) -> str:
        """Write the SQL that computes the aggregate, in Spark's type, from the rows of all views.

        Raises
        ------
        NotFoldable
            If Spark's answer can be computed from the matches only, not from views.
        """


def find_nulls(array: pa.Array) -> Any:
    """Return a NumPy mask of the NULLs of an Arrow array, or None if the array has no NULLs."""
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
