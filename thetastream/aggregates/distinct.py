"""``approx_count_distinct``: units build sketches of the values' 64-bit hashes, and Spark merges them.

The sketches are HyperLogLog sketches of Apache DataSketches. Spark's ``hll_union_agg`` reads the same bytes.
Values arrive as 64-bit hashes that Catalyst computes, so two values are equal if Spark considers them equal.
With 2^k registers the standard error is 1.04 / sqrt(2^k).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import ceil, log2
from typing import Any

import pyarrow as pa

from thetastream.aggregates.base import (
    Accumulator,
    Aggregate,
    AggregateCall,
    Column,
    MeasureFunction,
    NotFoldable,
)
from thetastream.core.errors import SessionError
from thetastream.core.spark_types import is_ordinary

_ERROR = 0.05
"""Spark's default for the relative standard deviation of approx_count_distinct."""
LEAST_K, MOST_K = 4, 21
"""The smallest and the largest k that the library supports."""
INSTALL = "pip install 'thetastream[sketches]'"


class _Sketches(Accumulator):
    def __init__(self, name: str, registers: int) -> None:
        super().__init__(name, "distinct", "list")
        self._registers = registers

    def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [sketch_hashes(found[0].combine_chunks(), self._registers)]

    def merge(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return [merge_sketches(found[0].combine_chunks(), self._registers)]


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
        registers = choose_registers(error)
        if registers is None:
            raise NotFoldable(f"no sketch errs by as little as {error:g}")
        if not is_available():
            raise NotFoldable(f"units count distinct values with the package datasketches: {INSTALL}")
        if not is_ordinary(call.type):
            raise NotFoldable(f"units do not count distinct values of type {call.type}")
        hashed = f"CASE WHEN {call.value} IS NOT NULL THEN xxhash64({call.value}) END"
        (sketches,) = call.measure(Sketch(registers), hashed)
        return f"coalesce(hll_sketch_estimate(hll_union_agg({sketches})), 0)"


def is_available() -> bool:
    """Whether the library is installed."""
    return find_spec("datasketches") is not None


def choose_registers(error: float) -> int | None:
    """Return k of the smallest sketch whose standard error is at most ``error``, or None if there is none.

    >>> choose_registers(0.05), choose_registers(0.01), choose_registers(1e-9)
    (9, 14, None)
    """
    k = max(LEAST_K, ceil(2 * log2(1.04 / error))) if error > 0 else MOST_K + 1
    return k if k <= MOST_K else None


def sketch_hashes(hashes: pa.ListArray, k: int) -> pa.Array:
    """Build a sketch of each list of hashes. NULLs are ignored; a list without hashes gives NULL."""
    library = _import_library()
    values, ends = hashes.flatten(), hashes.offsets.to_pylist()
    found = values.to_pylist() if values.null_count else values.to_numpy().tolist()
    first = ends[0]
    groups = (found[start - first : end - first] for start, end in pairwise(ends))
    return pa.array([_sketch_group(library, group, k) for group in groups], pa.binary())


def merge_sketches(sketches: pa.ListArray, k: int) -> pa.Array:
    """Merge each list of sketches into one sketch."""
    library = _import_library()
    return pa.array([_merge_group(library, parts, k) for parts in sketches.to_pylist()], pa.binary())


def _sketch_group(library: Any, hashes: Iterable[int | None], k: int) -> bytes | None:
    sketch = library.hll_sketch(k, library.tgt_hll_type.HLL_8)
    for value in hashes:
        if value is not None:
            sketch.update(value)
    return None if sketch.is_empty() else bytes(sketch.serialize_compact())


def _merge_group(library: Any, sketches: Iterable[bytes | None], k: int) -> bytes | None:
    parts = [part for part in sketches if part is not None]
    if len(parts) < 2:
        return parts[0] if parts else None
    union = library.hll_union(k)
    for part in parts:
        union.update(library.hll_sketch.deserialize(part))
    return bytes(union.get_result(library.tgt_hll_type.HLL_8).serialize_compact())


def _import_library() -> Any:
    try:
        import datasketches
    except ModuleNotFoundError:
        what = "units count distinct values with the package datasketches, and this worker has none"
        raise SessionError("DATASKETCHES", f"{what}; {INSTALL}") from None
    return datasketches
