"""Moments that merge: how many values, their mean, and the sum of squares around it.

    n = n1 + n2,  d = mean2 - mean1
    mean = mean1 + d * n2 / n
    m2 = m2_1 + m2_2 + d^2 * n1 * n2 / n

Chan, Golub, LeVeque (COMPSTAT 1982), here for any number of parts at once. Squares are of distances from
the mean, so digits are lost as the mean exceeds the deviation, and not as its square does.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Floats = npt.NDArray[np.float64]


class Moments(NamedTuple):
    """Of parts, or of groups; without values ``mean`` is anything and ``m2`` is 0."""

    n: Floats
    mean: Floats
    m2: Floats


def merged(parts: Moments, starts: npt.NDArray[np.int64]) -> Moments:
    """The moments of groups: parts ``[starts[i], starts[i + 1])`` are group ``i``, none is empty.

    >>> two = Moments(np.array([3.0, 1.0]), np.array([2.0, 6.0]), np.array([2.0, 0.0]))
    >>> [float(group[0]) for group in merged(two, np.array([0]))]
    [4.0, 3.0, 14.0]
    """
    lengths = np.diff(starts, append=len(parts.n))
    is_used = parts.n > 0

    def total(values: Floats) -> Floats:
        return np.add.reduceat(values, starts)

    # Infinity minus itself is NaN, as in Spark.
    with np.errstate(invalid="ignore", over="ignore"):
        n = total(parts.n)
        # Around one of its own values, equal ones deviate by 0 to the last bit.
        around = np.maximum.reduceat(np.where(is_used, parts.mean, -np.inf), starts)
        away = np.where(is_used, parts.mean - np.repeat(around, lengths), 0.0)
        shift = total(parts.n * away) / np.maximum(n, 1)
        apart = away - np.repeat(shift, lengths)
        m2 = total(np.where(is_used, parts.m2 + parts.n * apart * apart, 0.0))
        return Moments(n, around + shift, m2)


def of_values(values: pa.ListArray) -> list[pa.Array]:
    """``n``, ``mean`` and ``m2`` of each list of numbers, NULLs left out."""
    flat = values.flatten()
    n = flat.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
    numbers = _numbers(flat)
    return _columns(merged(Moments(n, numbers, np.zeros(len(n))), _starts(values)))


def of_moments(n: pa.ListArray, mean: pa.ListArray, m2: pa.ListArray) -> list[pa.Array]:
    """``n``, ``mean`` and ``m2`` of lists of them."""
    parts = Moments(*(_numbers(column.flatten()) for column in (n, mean, m2)))
    return _columns(merged(parts, _starts(n)))


def _columns(groups: Moments) -> list[pa.Array]:
    n = groups.n.astype(np.int64)
    return [pa.array(n), pa.array(groups.mean, mask=n == 0), pa.array(groups.m2)]


def _numbers(array: pa.Array) -> Floats:
    array = array.cast(pa.float64())
    return np.asarray((array.fill_null(0) if array.null_count else array).to_numpy())


def _starts(lists: pa.ListArray) -> Any:
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets[:-1] - offsets[0]
