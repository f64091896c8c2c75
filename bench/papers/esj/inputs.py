"""The join of ESJ's figures: an equality and a band, so that every index can be forced on it.

    r.k = s.k AND abs(r.v - s.v) <= REACH          k one of KEYS, v one of VALUES

A random pair matches with s = 1 / KEYS * band, band = (VALUES (2 REACH + 1) - REACH (REACH + 1)) / VALUES².
"""

from functools import lru_cache

import numpy as np
import pyarrow as pa

from bench.core.internals import Equality, Side
from bench.core.query import Query, band, keys, stamp

KEYS, VALUES = 16, 1 << 20
REACH = VALUES // 512
"""The band is a 256th of the values."""
BAND = (VALUES * (2 * REACH + 1) - REACH * (REACH + 1)) / VALUES**2
SELECTIVITY = BAND / KEYS


def draw_tuples(random: np.random.Generator, n: int) -> pa.Table:
    return pa.table({"k": random.integers(0, KEYS, n), "v": random.integers(0, VALUES, n)})


@lru_cache(maxsize=2)
def _tables(n: int, seed: int) -> tuple[pa.Table, pa.Table]:
    left, right = (stamp(draw_tuples(np.random.default_rng([seed, side]), n)) for side in Side)
    return left, right


def make_join(n: int, window: int, seed: int) -> Query:
    """Make the join of ``n`` tuples of each stream in a window of ``window`` tuples of each."""
    return Query(
        "equality and band",
        ("r", "s"),
        _tables(n, seed),
        f"r.k = s.k AND abs(r.v - s.v) <= {REACH}",
        keys("k", "v"),
        equalities=(Equality(0, 0),),
        dimensions=(band(1, REACH),),
        seed=seed,
    ).within(window / n)
