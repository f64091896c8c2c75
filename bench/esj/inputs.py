"""The join of all figures: an equality and a band, so that every index can be forced on it.

    r.k = s.k AND abs(r.v - s.v) <= REACH          k one of KEYS, v one of VALUES

A random pair matches with s = 1 / KEYS * band, band = (VALUES (2 REACH + 1) - REACH (REACH + 1)) / VALUES².
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.figures.query import Query, stamped
from thetastream.condition import Bound, Dimension, Domain, Equality, IndexSpec, Key
from thetastream.joiner.handshake import ChainJoin
from thetastream.models import Chain
from thetastream.plan.lower import choose_index
from thetastream.types import Side

KEYS, VALUES = 16, 1 << 20
REACH = VALUES // 512
"""A 256th of the values."""
BAND = (VALUES * (2 * REACH + 1) - REACH * (REACH + 1)) / VALUES**2
SELECTIVITY = BAND / KEYS
INDEXES = ("scan", "hash", "sorted", "hash_sorted")
PIECE = 1 << 22
"""Pairs that are looked at at once."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Keyed(Query):
    """The join, its tuples in one kind of index."""

    kind: str = "hash_sorted"

    @property
    def index(self) -> IndexSpec:
        """As ``th.join(..., index=kind)`` makes it."""
        return choose_index(self.condition, self.kind)[0]

    def by(self, kind: str) -> "Keyed":
        """The same join with another index."""
        return replace(self, kind=kind)

    def chain(self, model: Chain) -> ChainJoin:
        """What a worker of a chain is told."""
        spec = self.unit_spec()
        return ChainJoin(spec.condition, spec.indexes, spec.archive_period_us, model)

    def expected(self) -> int:
        """The number of results."""
        left, right = (columns(table) for table in self.tables)
        return count_pairs(left, right, self.window_us)


def columns(table: pa.Table) -> tuple[Int64s, Int64s, Int64s]:
    """k, v and ts."""
    k, v, ts = (table.column(name).combine_chunks() for name in ("k", "v", "ts"))
    return k.to_numpy(), v.to_numpy(), ts.view(pa.int64()).to_numpy()


def count_pairs(
    left: tuple[Int64s, Int64s, Int64s], right: tuple[Int64s, Int64s, Int64s], window_us: int | None
) -> int:
    """Pairs of equal k, v at most REACH and event times at most a window apart; nothing of the engine.

    >>> a = np.array([1, 1]), np.array([0, 9]), np.array([0, 50])
    >>> count_pairs(a, a, 49), count_pairs(a, a, 50), count_pairs(a, a, None)
    (2, 4, 4)
    """
    found = 0
    for key in np.unique(left[0]):
        (v, ts), (w, us) = ((values[k == key], times[k == key]) for k, values, times in (left, right))
        order = np.argsort(w)
        w, us = w[order], us[order]
        first, last = np.searchsorted(w, v - REACH), np.searchsorted(w, v + REACH, "right")
        if window_us is None:
            found += int((last - first).sum())
            continue
        step = max(1, PIECE // max(1, int((last - first).max(initial=0))))
        for start in range(0, len(v), step):
            sizes = (last - first)[start : start + step]
            partner = np.arange(sizes.sum()) + np.repeat(first[start : start + step] - _before(sizes), sizes)
            apart = np.abs(np.repeat(ts[start : start + step], sizes) - us[partner])
            found += int((apart <= window_us).sum())
    return found


def _before(sizes: Int64s) -> Int64s:
    return np.cumsum(sizes) - sizes


@lru_cache(maxsize=2)
def _tables(n: int, seed: int) -> tuple[pa.Table, pa.Table]:
    left, right = (stamped(drawn(np.random.default_rng([seed, side]), n)) for side in Side)
    return left, right


def drawn(random: np.random.Generator, n: int) -> pa.Table:
    """Tuples without event times."""
    return pa.table({"k": random.integers(0, KEYS, n), "v": random.integers(0, VALUES, n)})


def keyed(n: int, window: int, seed: int) -> Keyed:
    """The join of ``n`` tuples a stream in a window of so many of each."""
    key = Key("k", Domain.INT), Key("v", Domain.INT)
    query = Keyed(
        "equality and band",
        ("r", "s"),
        _tables(n, seed),
        f"r.k = s.k AND abs(r.v - s.v) <= {REACH}",
        (key, key),
        equalities=(Equality(0, 0),),
        dimensions=(Dimension(Side.LEFT, 1, Bound(1, -REACH), Bound(1, REACH)),),
        seed=seed,
    )
    return replace(query, window_us=query.within(window / n).window_us)
