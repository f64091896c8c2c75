"""``sum`` and ``avg``: units add values up exactly in decimals of 38 digits, or in double.

Integers are added up as decimals, because int64 would wrap around where Spark's own sum of the merged views
raises an error or returns NULL. Decimals of more than 28 digits are added up with 76 digits. In ANSI mode, a
sum of more than 38 digits is an error, in Spark and in units. In other modes, Spark's sum is then NULL, and
units do not add up such decimals. The average is the sum of the sums divided by the sum of the counts.
"""

from collections.abc import Sequence

import pyarrow as pa

from thetastream.aggregate.base import (
    Accumulator,
    Aggregate,
    AggregateCall,
    Column,
    MeasureFunction,
    NotFoldable,
)
from thetastream.aggregate.count import ValueCount
from thetastream.core.spark_types import is_floating, is_integral, parse_decimal
from thetastream.errors import ThetastreamError

_WIDEST_DECIMAL = 28
"""The largest precision for which the sums of an epoch always fit into 38 digits."""
_WIDEST_MEAN = 14
"""The largest precision at which the quotient of sum and count has ten digits more than the s + 4 of ``avg``.
The quotient is rounded twice. The result is still rounded correctly for counts below 5e9."""
_INTEGER_SUM = pa.decimal128(38, 0)
_MOST_DIGITS = 38


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
    return f"sum({total})"


def _write_cast(call: AggregateCall, total: str) -> str:
    return f"CAST({total} AS {call.type_of(f'sum({call.value})')})"


class Sum(Aggregate):
    """``sum(x)``."""

    names = ("SUM",)

    def merge(self, call: AggregateCall) -> str:
        return _write_cast(call, _write_total(call))


class Average(Aggregate):
    """``avg(x)``, ``mean(x)``."""

    names = ("AVG", "MEAN")

    def merge(self, call: AggregateCall) -> str:
        total, decimal = _write_total(call), parse_decimal(call.type)
        if decimal and decimal[0] > _WIDEST_MEAN:
            raise NotFoldable(f"a quotient of sums of {call.type} has fewer digits than its avg")
        (n,) = call.measure(ValueCount(), call.presence)
        if decimal is None:
            return f"(CAST({total} AS DOUBLE) / nullif(sum({n}), 0))"
        count = f"nullif(CAST(sum({n}) AS DECIMAL(20,0)), 0)"
        return f"CAST({_write_cast(call, total)} / {count} AS {call.type_of(f'avg({call.value})')})"
