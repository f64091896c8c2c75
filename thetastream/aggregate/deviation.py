"""Variance and standard deviation under all of Spark's names: units measure moments, which can be merged."""

from collections.abc import Sequence

import pyarrow as pa

from thetastream.aggregate import moments
from thetastream.aggregate.base import Accumulator, Aggregate, AggregateCall, Column, MeasureFunction
from thetastream.aggregate.sums import refuse_other_than_numbers

_DIVISORS = {
    # Spark's name: (divisor of the sum of squares, whether the square root is taken)
    **dict.fromkeys(("VARIANCE", "VAR_SAMP"), ("{n} - 1", False)),
    **dict.fromkeys(("STDDEV", "STD", "STDDEV_SAMP"), ("{n} - 1", True)),
    "VAR_POP": ("{n}", False),
    "STDDEV_POP": ("{n}", True),
}


class _Moments(Accumulator):
    """It measures the moments of the values that are not NULL."""

    def count(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return moments.measure_values(found[0].combine_chunks())

    def merge(self, found: Sequence[pa.ChunkedArray]) -> Sequence[Column]:
        return moments.merge_moments(*(column.combine_chunks() for column in found))


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
