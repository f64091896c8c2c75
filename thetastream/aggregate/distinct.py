"""``approx_count_distinct``: units build sketches of the values' 64-bit hashes, and Spark merges them."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from thetastream.aggregate import sketch
from thetastream.aggregate.base import (
    Accumulator,
    Aggregate,
    AggregateCall,
    Column,
    MeasureFunction,
    NotFoldable,
)
from thetastream.core.spark_types import is_ordinary

_ERROR = 0.05
"""Spark's default for the relative standard deviation of approx_count_distinct."""


class _Sketches(Accumulator):
    def __init__(self, name: str, registers: int) -> None:
        super().__init__(name, "distinct", "list")
        self._registers = registers

    def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [sketch.sketch_hashes(found[0].combine_chunks(), self._registers)]

    def merge(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [sketch.merge_sketches(found[0].combine_chunks(), self._registers)]


@dataclass(frozen=True)
class Sketch(MeasureFunction):
    """A HyperLogLog sketch of 64-bit hashes."""

    registers: int
    """The base-2 logarithm of the number of registers."""
    name = "distinct"

    def types(self, type_: str) -> Sequence[str | None]:
        return ("binary",)

    def build_accumulator(self, name: str) -> Accumulator:
        return _Sketches(name, self.registers)


class ApproximateDistinct(Aggregate):
    """``approx_count_distinct(x)``, ``approx_count_distinct(x, error)``."""

    names = ("APPROX_COUNT_DISTINCT",)
    most_arguments = 2

    def merge(self, call: AggregateCall) -> str:
        """Write the merge of sketches. Spark gives equal values equal hashes, also for NaN and -0.0."""
        try:
            error = float(call.options[0]) if call.options else _ERROR
        except ValueError:
            raise NotFoldable(
                f"the error of a sketch is {call.options[0]}, which is no plain number"
            ) from None
        registers = sketch.choose_registers(error)
        if registers is None:
            raise NotFoldable(f"no sketch errs by as little as {error:g}")
        if not sketch.is_available():
            raise NotFoldable(f"units count distinct values with the package datasketches: {sketch.INSTALL}")
        if not is_ordinary(call.type):
            raise NotFoldable(f"units do not count distinct values of type {call.type}")
        hashed = f"CASE WHEN {call.value} IS NOT NULL THEN xxhash64({call.value}) END"
        (sketches,) = call.measure(Sketch(registers), hashed)
        return f"coalesce(hll_sketch_estimate(hll_union_agg({sketches})), 0)"
