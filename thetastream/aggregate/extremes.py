"""``min`` and ``max``: the extremes of the views' extremes are the extremes of all values."""

from collections.abc import Sequence

import pyarrow as pa

from thetastream.aggregate.base import (
    Accumulator,
    Aggregate,
    AggregateCall,
    Column,
    MeasureFunction,
    NotFoldable,
    find_nulls,
)
from thetastream.core.keys import decode_floats, encode_floats
from thetastream.core.spark_types import is_ordinary


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
