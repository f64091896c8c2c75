"""Chooses what units need before a query runs: their grouping keys, and the model if the partitions differ.

Spark keeps the number of shuffle partitions of a query in its checkpoint. The choice of a model is a function
of this number. A plan is made for the number of the session. If the query runs with another one, because it
continues from a checkpoint, workers choose again for the number of the query. So they always choose the model
that was chosen when the query first started. The grouping keys of units do not depend on this number.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thetastream.core.identity import Part
from thetastream.engine.protocol import EngineSpec
from thetastream.runtime.flow import Choice

CYCLE = 720720
"""A number that is divisible by 1 to 16, 18, 20, 21, 22, 24, 26, 28, 30, 36, 40, 42, 48, ..."""
_CHUNK = 1 << 20
_SEED = np.uint32(42)
"""The seed of Spark's ``hash``."""


@dataclass(frozen=True)
class FittedSpec:
    """The spec of a query, and the choice by which workers find the spec of a restarted query. Picklable."""

    planned: EngineSpec
    choice: Choice | None = None
    max_units: int = 0
    """The number of slots on which units may run, if the query is controlled."""
    _found: dict[int | None, "RunningSpec"] = field(default_factory=dict, compare=False, repr=False)
    """A cache of specs by the number of partitions, because the planner may have to choose a model."""

    @property
    def keys(self) -> tuple[int, ...]:
        """The grouping key of each slot on which a unit of the planned spec may run."""
        return self.fit(None).keys

    def fit(self, partitions: int | None) -> "RunningSpec":
        """Find the spec of a query that runs with a number of partitions; None if Spark does not tell it."""
        if partitions not in self._found:
            self._found[partitions] = self._fit(partitions)
        return self._found[partitions]

    def _fit(self, partitions: int | None) -> "RunningSpec":
        spec, model = self.planned, None
        if self.choice is not None and partitions not in (None, self.choice.partitions):
            spec, model = self.choice.fit(partitions)
        return RunningSpec(spec, find_unit_keys(max(spec.n_units, self.max_units)), model)


class RunningSpec(NamedTuple):
    """The spec that a query runs."""

    spec: EngineSpec
    keys: tuple[int, ...]
    """The grouping key of each slot on which a unit may run."""
    model: Part | None = None
    """The part of the identity that names the model; None if it is the planned one."""


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
    """Find the grouping key of each of ``n_units`` units, so that they fill shuffle partitions evenly.

    Spark puts a key into partition pmod(hash(key), partitions) and hashes an int key with Murmur3 (seed 42).
    Unit i gets the first key found whose hash is i (mod ``CYCLE``). Unit i is then in partition i mod p for
    every p that divides CYCLE. The keys do not depend on the number of partitions, which may differ between
    queries.
    """
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
