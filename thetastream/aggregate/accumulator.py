"""How a measure adds up: a column of matches to columns of a view, rows of views to fewer rows.

    measure    columns of a view   of matches                 of views
    count      one                 count                      sum
    sum        one                 sum                        sum
    min, max   one                 min, max                   min, max
    moments    n, mean, m2         moments of the values      moments of moments
    distinct   one                 sketch of the hashes       union of the sketches

Arrow groups. It gathers a group's values in a list where it has no function of that kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from thetastream.aggregate import moments, sketch
from thetastream.keys import decode_floats, encode_floats
from thetastream.types import Side

Call = tuple[Any, str]
"""A column, or none, and Arrow's function over it."""
Column = Any
"""Of Arrow, in chunks or in one piece."""
_INTEGER_SUM = pa.decimal128(38, 0)
_MOMENTS = ("n", "mean", "m2")


@dataclass(frozen=True)
class Measure:
    """``count``, ``sum``, ``min``, ``max``, ``moments`` or ``distinct`` over a column of one side.

    Without a column it counts matches. ``distinct`` is over 64-bit hashes, and says how fine its sketch is.
    """

    function: str
    side: Side | None = None
    column: str | None = None
    registers: int | None = None
    """Of a sketch: the logarithm to base 2."""


def columns_of(name: str, function: str) -> tuple[str, ...]:
    """The columns of a view that hold a measure of this name.

    >>> columns_of("m0", "sum"), columns_of("m1", "moments")
    (('m0',), ('m1_n', 'm1_mean', 'm1_m2'))
    """
    return tuple(f"{name}_{part}" for part in _MOMENTS) if function == "moments" else (name,)


class Accumulator:
    """One measure of one view; in this class by Arrow's own functions."""

    def __init__(self, name: str, measure: Measure) -> None:
        self._function = measure.function
        self.columns: tuple[str, ...] = columns_of(name, measure.function)
        """Of the view."""
        self.of_matches: Sequence[Call] = (
            ([], "count_all") if measure.column is None else (name, measure.function),
        )
        """Over the column that ``read`` gives, which has the name of the measure."""
        self.of_views: Sequence[Call] = ((name, "sum" if measure.function == "count" else measure.function),)

    def read(self, column: pa.Array) -> pa.Array:
        """The column of matches in a type whose Arrow functions give Spark's answer."""
        if self._function != "sum":
            return column
        if pa.types.is_integer(column.type):
            return column.cast(_INTEGER_SUM)  # exact, where int64 would wrap around
        return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column

    def counted(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        """``columns``, of what ``of_matches`` gave."""
        return found

    def merged(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        """``columns``, of what ``of_views`` gave."""
        return found

    def shown(self, column: pa.ChunkedArray) -> Column:
        """A column as it leaves the view."""
        return column


class _End(Accumulator):
    """The least or greatest: NaN is the greatest number in Spark, and none in Arrow."""

    _floating: pa.DataType | None = None

    def read(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_floating(column.type):
            return column
        self._floating = column.type
        values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(encode_floats(values), mask=_nulls(column))

    def shown(self, column: pa.ChunkedArray) -> Column:
        if self._floating is None:
            return column
        array = column.combine_chunks()
        values = decode_floats(array.fill_null(0).to_numpy(zero_copy_only=False))
        return pa.array(values, mask=_nulls(array)).cast(self._floating)


class _Moments(Accumulator):
    """Of the values, NULLs left out."""

    def __init__(self, name: str, measure: Measure) -> None:
        super().__init__(name, measure)
        self.of_matches = ((name, "list"),)
        self.of_views = tuple((column, "list") for column in self.columns)

    def counted(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return moments.of_values(found[0].combine_chunks())

    def merged(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return moments.of_moments(*(column.combine_chunks() for column in found))


class _Distinct(Accumulator):
    """Of 64-bit hashes."""

    def __init__(self, name: str, measure: Measure) -> None:
        super().__init__(name, measure)
        assert measure.registers is not None
        self._registers = measure.registers
        self.of_matches = ((name, "distinct"),)
        self.of_views = ((name, "list"),)

    def counted(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [sketch.of_hashes(found[0].combine_chunks(), self._registers)]

    def merged(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [sketch.of_sketches(found[0].combine_chunks(), self._registers)]


_KINDS: dict[str, type[Accumulator]] = {"min": _End, "max": _End, "moments": _Moments, "distinct": _Distinct}


def accumulator(name: str, measure: Measure) -> Accumulator:
    """For one view; ``name`` is that of the measure's column."""
    return _KINDS.get(measure.function, Accumulator)(name, measure)


def _nulls(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
