"""Moments that can be merged: the number of values, their mean, and the sum of squared distances from it.

    n = n1 + n2,  d = mean2 - mean1
    mean = mean1 + d * n2 / n
    m2 = m2_1 + m2_2 + d^2 * n1 * n2 / n

The formulas are those of Chan, Golub and LeVeque (COMPSTAT 1982), extended to any number of parts at once.
They square distances from the mean, so the lost digits grow with mean / deviation, and not with its square.

``Deviation`` is the variance and the standard deviation under all of Spark's names.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.aggregates.base import Accumulator, Aggregate, AggregateCall, Column, MeasureFunction
from thetastream.aggregates.simple import refuse_other_than_numbers

Floats = npt.NDArray[np.float64]
_DIVISORS = {
    # Spark's name: (divisor of the sum of squares, whether the square root is taken)
    **dict.fromkeys(("VARIANCE", "VAR_SAMP"), ("{n} - 1", False)),
    **dict.fromkeys(("STDDEV", "STD", "STDDEV_SAMP"), ("{n} - 1", True)),
    "VAR_POP": ("{n}", False),
    "STDDEV_POP": ("{n}", True),
}


class MomentArrays(NamedTuple):
    """The moments of several parts or groups. Where ``n`` is 0, ``mean`` has no meaning and ``m2`` is 0."""

    n: Floats
    mean: Floats
    m2: Floats


def merge(parts: MomentArrays, starts: npt.NDArray[np.int64]) -> MomentArrays:
    """Merge parts into groups. Group ``i`` is parts ``[starts[i], starts[i + 1])``; no group is empty.

    >>> two = MomentArrays(np.array([3.0, 1.0]), np.array([2.0, 6.0]), np.array([2.0, 0.0]))
    >>> [float(group[0]) for group in merge(two, np.array([0]))]
    [4.0, 3.0, 14.0]
    """
    lengths = np.diff(starts, append=len(parts.n))
    is_used = parts.n > 0

    def total(values: Floats) -> Floats:
        return np.add.reduceat(values, starts)

    # Infinity minus itself is NaN, as in Spark.
    with np.errstate(invalid="ignore", over="ignore"):
        n = total(parts.n)
        # The pivot is one of the group's own means, so equal values have a deviation of exactly 0.
        pivot = np.maximum.reduceat(np.where(is_used, parts.mean, -np.inf), starts)
        distances = np.where(is_used, parts.mean - np.repeat(pivot, lengths), 0.0)
        shift = total(parts.n * distances) / np.maximum(n, 1)
        deviations = distances - np.repeat(shift, lengths)
        m2 = total(np.where(is_used, parts.m2 + parts.n * deviations * deviations, 0.0))
        return MomentArrays(n, pivot + shift, m2)


def measure_values(values: pa.ListArray) -> list[pa.Array]:
    """Compute ``n``, ``mean`` and ``m2`` of each list of numbers. NULLs are ignored."""
    flat = values.flatten()
    n = flat.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
    numbers = _read_numbers(flat)
    return _build_columns(merge(MomentArrays(n, numbers, np.zeros(len(n))), _find_starts(values)))


def merge_moments(n: pa.ListArray, mean: pa.ListArray, m2: pa.ListArray) -> list[pa.Array]:
    """Merge lists of moments: compute ``n``, ``mean`` and ``m2`` of each list."""
    parts = MomentArrays(*(_read_numbers(column.flatten()) for column in (n, mean, m2)))
    return _build_columns(merge(parts, _find_starts(n)))


def _build_columns(groups: MomentArrays) -> list[pa.Array]:
    n = groups.n.astype(np.int64)
    return [pa.array(n), pa.array(groups.mean, mask=n == 0), pa.array(groups.m2)]


def _read_numbers(array: pa.Array) -> Floats:
    array = array.cast(pa.float64())
    return np.asarray((array.fill_null(0) if array.null_count else array).to_numpy())


def _find_starts(lists: pa.ListArray) -> Any:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets[:-1] - offsets[0]


class _Moments(Accumulator):
    """It measures the moments of the values that are not NULL."""

    def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return measure_values(found[0].combine_chunks())

    def merge(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return merge_moments(*(column.combine_chunks() for column in found))


class Moments(MeasureFunction):
    """The number of values, their mean, and the sum of squared distances from the mean."""

    name = "moments"
    parts = ("_n", "_mean", "_m2")

    def types(self, type_: str) -> Sequence[str | None]:
        return ("bigint", "double", "double")

    def build_accumulator(self, name: str) -> Accumulator:
        return _Moments(name, "list", "list", self.parts)


class Deviation(Aggregate):
    """``variance(x)``, ``stddev(x)`` and their other names."""

    names = tuple(_DIVISORS)

    def merge(self, call: AggregateCall) -> str:
        """Write the variance or deviation from the moments of v views, each with n values, mean and m2.

        M2 = sum m2 + sum n (mean - M)^2. Spark has no weighted variance, so the last sum is computed from
        covariances of views. With c(x) = sum (x - avg x)(mean - avg mean) = v covar_pop(x, mean), it is
        c(n mean) - avg(mean) c(n) - c(n)^2 / N. It loses digits in proportion to mean / deviation.
        """
        refuse_other_than_numbers(call)
        value = call.value if call.type == "double" else f"CAST({call.value} AS DOUBLE)"
        n, mean, m2 = call.measure(Moments(), value)
        count = f"CAST(sum({n}) AS DOUBLE)"
        covaried = f"(count({mean}) * covar_pop({n}, {mean}))"
        between = (
            f"count({mean}) * covar_pop({n} * {mean}, {mean}) - avg({mean}) * {covaried}"
            f" - {covaried} * {covaried} / nullif({count}, 0)"
        )
        divisor, is_root = _DIVISORS[call.name]
        below = divisor.format(n=count)
        variance = f"greatest(sum({m2}) + {between}, 0D) / ({below})"
        return f"CASE WHEN {below} > 0 THEN {f'sqrt({variance})' if is_root else variance} END"
