"""Chooses the grouping key of each unit, so that Spark spreads units evenly over shuffle partitions.

Spark puts a key into partition pmod(hash(key), partitions) and hashes an int key with Murmur3 (seed 42). Unit
i gets the first key found whose hash is i (mod ``CYCLE``). Unit i is then in partition i mod p for every p
that divides CYCLE, so units fill partitions evenly. The keys do not depend on the number of partitions, which
may differ between queries.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

CYCLE = 720720
"""A number that is divisible by 1 to 16, 18, 20, 21, 22, 24, 26, 28, 30, 36, 40, 42, 48, ..."""
_CHUNK = 1 << 20
_SEED = np.uint32(42)
"""The seed of Spark's ``hash``."""


def murmur3(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Hash integers as Spark's ``hash(int)`` does.

    >>> int(murmur3(np.array([1], dtype=np.int32))[0])
    -559580957
    """

    def rotate(x: npt.NDArray[np.uint32], r: int) -> npt.NDArray[np.uint32]:
        return (x << np.uint32(r)) | (x >> np.uint32(32 - r))

    with np.errstate(over="ignore"):
        k = values.view(np.uint32) * np.uint32(0xCC9E2D51)
        k = rotate(k, 15) * np.uint32(0x1B873593)
        h = rotate(_SEED ^ k, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        h ^= np.uint32(4)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return (h ^ (h >> np.uint32(16))).view(np.int32)


@cache
def find_unit_keys(n_units: int) -> tuple[int, ...]:
    """Find the grouping key of each of ``n_units`` units."""
    keys: dict[int, int] = {}
    start = 0
    while len(keys) < n_units:
        candidates = np.arange(start, start + _CHUNK, dtype=np.int32)
        residues = murmur3(candidates).astype(np.int64) % CYCLE
        wanted = np.flatnonzero(residues < n_units)
        for position in wanted:
            keys.setdefault(int(residues[position]), int(candidates[position]))
        start += _CHUNK
    return tuple(keys[unit] for unit in range(n_units))
