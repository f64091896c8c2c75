"""Aggregates whose measures are plain numbers: ``count``, ``sum``, ``avg``, ``min`` and ``max``.

``count`` counts matches, or values that are not NULL, and the counts of views are added up. ``min`` and
``max`` are the extremes of the views' extremes. ``sum`` and ``avg`` add values up exactly in decimals of 38
digits, or in double. The average is the sum of the sums divided by the sum of the counts. Integers are added
up as decimals, because int64 would wrap around where Spark's own sum of the merged views raises an error or
returns NULL. Decimals of more than 28 digits are added up with 76 digits. In ANSI mode, a sum of more than 38
digits is an error, in Spark and in units. In other modes, Spark's sum is then NULL, and units do not add up
such decimals.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from thetastream.aggregates.base import (
    Accumulator,
    Aggregate,
    AggregateCall,
    Column,
    MeasureFunction,
    NotFoldable,
    find_nulls,
)
from thetastream.core.cancellation import Signs
from thetastream.core.errors import ThetastreamError
from thetastream.core.keys import decode_floats, encode_floats
from thetastream.core.spark_types import is_floating, is_integral, is_ordinary, parse_decimal

_WIDEST_DECIMAL = 28
"""The largest precision for which the sums of an epoch always fit into 38 digits."""
_WIDEST_MEAN = 14
"""The largest precision at which the quotient of sum and count has ten digits more than the s + 4 of ``avg``.
The quotient is rounded twice. The result is still rounded correctly for counts below 5e9."""
_INTEGER_SUM = pa.decimal128(38, 0)
_MOST_DIGITS = 38


class _SignedCount(Accumulator):
    """The number of inserted rows, or of their values that are not NULL, minus that of deleted rows."""

    def read_signed(self, column: pa.Array | None, signs: Signs) -> pa.Array:
        ones = signs.astype(np.int64)
        nulls = None if column is None else find_nulls(column)
        return pa.array(ones if nulls is None else np.where(nulls, 0, ones))


class _Matches(Accumulator):
    """It counts rows, so Arrow needs no column."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "count_all", "sum")
        self.of_matches = (([], "count_all"),)


class MatchCount(MeasureFunction):
    """The number of matches."""

    name = "count"

    def types(self, type_: str) -> Sequence[str | None]:
        return ("bigint",)

    def build_accumulator(self, name: str) -> Accumulator:
        return _Matches(name)

    def build_signed(self, name: str) -> Accumulator:
        return _SignedCount(name, "sum", "sum")


class ValueCount(MatchCount):
    """The number of values that are not NULL."""

    def build_accumulator(self, name: str) -> Accumulator:
        return Accumulator(name, "count", "sum")


class Count(Aggregate):
    """``count(*)``, ``count(x)``."""

    names = ("COUNT",)
    takes_star = True
    takes_deletes = True

    def merge(self, call: AggregateCall) -> str:
        if call.is_every_match:
            (n,) = call.measure(MatchCount())
        else:
            (n,) = call.measure(ValueCount(), call.presence)
        return f"coalesce(sum({n}), 0)"


class _Adder(Accumulator):
    def read(self, column: pa.Array) -> pa.Array:
        if pa.types.is_integer(column.type):
            return column.cast(_INTEGER_SUM)  # exact; int64 could wrap around
        return column.cast(pa.float64()) if pa.types.is_floating(column.type) else column


class Total(MeasureFunction):
    """The sum of the values. NULLs are ignored."""

    name = "sum"

    def types(self, type_: str) -> Sequence[str | None]:
        if is_floating(type_):
            return ("double",)
        _, scale = parse_decimal(type_) or (38, 0)
        return (f"decimal(38,{scale})",)

    def build_accumulator(self, name: str) -> Accumulator:
        return _Adder(name, "sum", "sum")


class _WideAdder(Accumulator):
    def read(self, column: pa.Array) -> pa.Array:
        return column.cast(pa.decimal256(76, column.type.scale))

    def show(self, column: pa.ChunkedArray) -> Column:
        try:
            return column.cast(pa.decimal128(_MOST_DIGITS, column.type.scale))
        except pa.ArrowInvalid as error:
            what = f"a sum has more than {_MOST_DIGITS} digits, {column.type.scale} of them behind the point"
            raise ThetastreamError("ARITHMETIC_OVERFLOW", f"{what}; round the values") from error


class WideTotal(MeasureFunction):
    """The sum of decimals of any precision. NULLs are ignored."""

    name = "sum"

    def types(self, type_: str) -> Sequence[str | None]:
        _, scale = parse_decimal(type_) or (_MOST_DIGITS, 0)
        return (f"decimal({_MOST_DIGITS},{scale})",)

    def build_accumulator(self, name: str) -> Accumulator:
        return _WideAdder(name, "sum", "sum")


def refuse_other_than_numbers(call: AggregateCall) -> None:
    """Raise ``NotFoldable`` unless the argument is a number."""
    if not (is_integral(call.type) or is_floating(call.type) or parse_decimal(call.type)):
        raise NotFoldable(f"units do not add up values of type {call.type}")


def _write_total(call: AggregateCall) -> str:
    refuse_other_than_numbers(call)
    decimal = parse_decimal(call.type)
    is_wide = decimal is not None and decimal[0] > _WIDEST_DECIMAL
    if is_wide and not call.is_ansi:
        raise NotFoldable(f"units do not add up values of type {call.type} unless ANSI mode is on")
    (total,) = call.measure(WideTotal() if is_wide else Total(), call.value)
    if not call.has_deletes:
        return f"sum({total})"
    return f"CASE WHEN {_write_count(call)} <> 0 THEN sum({total}) END"


def _write_count(call: AggregateCall) -> str:
    """Write the number of values that are not NULL."""
    (n,) = call.measure(ValueCount(), call.presence)
    return f"sum({n})"


def _write_cast(call: AggregateCall, total: str) -> str:
    return f"CAST({total} AS {call.type_of(f'sum({call.value})')})"


class Sum(Aggregate):
    """``sum(x)``."""

    names = ("SUM",)
    takes_deletes = True

    def merge(self, call: AggregateCall) -> str:
        return _write_cast(call, _write_total(call))


class Average(Aggregate):
    """``avg(x)``, ``mean(x)``."""

    names = ("AVG", "MEAN")
    takes_deletes = True

    def merge(self, call: AggregateCall) -> str:
        total, decimal = _write_total(call), parse_decimal(call.type)
        if decimal and decimal[0] > _WIDEST_MEAN:
            raise NotFoldable(f"a quotient of sums of {call.type} has fewer digits than its avg")
        n = _write_count(call)
        if decimal is None:
            return f"(CAST({total} AS DOUBLE) / nullif({n}, 0))"
        count = f"nullif(CAST({n} AS DECIMAL(20,0)), 0)"
        return f"CAST({_write_cast(call, total)} / {count} AS {call.type_of(f'avg({call.value})')})"


class _Extreme(Accumulator):
    """The least or greatest value. Floating-point numbers are compared as encoded keys.

    In Spark, NaN is the greatest number; Arrow's functions ignore it.
    """

    _floating: pa.DataType | None = None

    def read(self, column: pa.Array) -> pa.Array:
        if not pa.types.is_floating(column.type):
            return column
        self._floating = column.type
        values = column.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(encode_floats(values), mask=find_nulls(column))

    def show(self, column: pa.ChunkedArray) -> Column:
        if self._floating is None:
            return column
        array = column.combine_chunks()
        values = decode_floats(array.fill_null(0).to_numpy(zero_copy_only=False))
        return pa.array(values, mask=find_nulls(array)).cast(self._floating)


class Least(MeasureFunction):
    """The least value."""

    name = "min"

    def types(self, type_: str) -> Sequence[str | None]:
        return (None,)

    def build_accumulator(self, name: str) -> Accumulator:
        return _Extreme(name, self.name, self.name)


class Greatest(Least):
    """The greatest value."""

    name = "max"


class Minimum(Aggregate):
    """``min(x)``."""

    names = ("MIN",)
    _measure: MeasureFunction = Least()

    def merge(self, call: AggregateCall) -> str:
        if not is_ordinary(call.type):
            raise NotFoldable(f"units do not compare values of type {call.type}")
        (extreme,) = call.measure(self._measure, call.value)
        return f"{self._measure.name}({extreme})"


class Maximum(Minimum):
    """``max(x)``."""

    names = ("MAX",)
    _measure = Greatest()
