"""The joins that are measured, as data and as conditions; ``backfill`` has a file of its own.

handshake    the two-dimensional band of CellJoin, handshake join and SplitJoin: columns and value
             ranges are theirs. Matches per probe and window tuple: (21 / 9999) * (20 / 9999).
equi         one key of 1e6 values: a window of 1e6 tuples gives about one match per tuple.
stock        equality and inequality: bids meet asks of their symbol that cost no more. Symbols follow
             Zipf (s = 1, 1000 symbols), so that two random tuples share their symbol with
             probability 0.029, and the most traded one takes 13 % of both streams.
inequality   an inequality alone: the values are two bell curves of which only the tails meet.

"""

from statistics import NormalDist

import numpy as np
import pyarrow as pa

from bench.core import backfill
from bench.core.join_sql import Cells
from bench.core.workload import Columns, Draw, Workload

SYMBOLS = 1000
KEYS = 1_000_000
STOCK_RESULTS = 4
INEQUALITY_RESULTS = 4


def _letters(random: np.random.Generator, n: int, length: int) -> pa.Array:
    text = random.integers(97, 123, size=n * length, dtype=np.uint8)
    offsets = np.arange(0, (n + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text))


def _handshake_r(random: np.random.Generator, n: int, window: int) -> Columns:
    return {
        "x": pa.array(random.integers(1, 10001, n, dtype=np.int32)),
        "y": pa.array(random.uniform(1, 10000, n).astype(np.float32)),
        "z": _letters(random, n, 20),
    }


def _handshake_s(random: np.random.Generator, n: int, window: int) -> Columns:
    return {
        "a": pa.array(random.integers(1, 10001, n, dtype=np.int32)),
        "b": pa.array(random.uniform(1, 10000, n).astype(np.float32)),
        "c": pa.array(random.uniform(1, 10000, n)),
        "d": pa.array(random.integers(0, 2, n).astype(bool)),
    }


def _equi(random: np.random.Generator, n: int, window: int) -> Columns:
    return {"k": pa.array(random.integers(0, KEYS, n)), "v": pa.array(random.uniform(1, 10000, n))}


def symbol_weights() -> np.ndarray:
    """Return the probability of each symbol by Zipf's law with s = 1."""
    weights: np.ndarray = 1.0 / np.arange(1, SYMBOLS + 1)
    weights /= weights.sum()
    return weights


def overlap(probability: float) -> float:
    """Return the distance h such that P(N(0, 1) - h >= N(0, 1) + h) = ``probability``."""
    return -NormalDist(0, 2**0.5).inv_cdf(probability) / 2


def _stock(sign: int) -> Draw:
    def draw(random: np.random.Generator, n: int, window: int) -> Columns:
        weights = symbol_weights()
        symbol = random.choice(SYMBOLS, n, p=weights)
        middle = 20 + (symbol * 7919) % 480
        half_spread = overlap(min(0.5, STOCK_RESULTS / (window * float((weights**2).sum()))))
        price = middle * (1 + 0.01 * (random.standard_normal(n) + sign * half_spread))
        names = pa.array([f"S{i:04d}" for i in range(SYMBOLS)])
        return {
            "symbol": names.take(pa.array(symbol)),
            "price": pa.array(np.round(price, 4)),
            "volume": pa.array(random.integers(1, 1000, n, dtype=np.int32)),
        }

    return draw


def _inequality(sign: int) -> Draw:
    def draw(random: np.random.Generator, n: int, window: int) -> Columns:
        half = overlap(min(0.5, INEQUALITY_RESULTS / window))
        value = random.standard_normal(n) + sign * half
        return {"v": pa.array(value), "id": pa.array(random.integers(0, 1 << 40, n))}

    return draw


def _handshake_cells(window: int) -> tuple[Cells, ...]:
    """Choose cells for about ten candidates per probe, and at least two copies.

    Of widths of 20, 40 and 80, 80 was fastest for a window of 131,072; of 10 and 20, 20 for 2,097,152.

    >>> [_handshake_cells(window)[0].width for window in (131_072, 2_097_152)]
    [67, 20]
    """
    width = max(20, int((10 * 1e8 / window) ** 0.5) - 20)
    return Cells("x", "a", 10, width), Cells("y", "b", 10, width)


_HANDSHAKE = "r.x BETWEEN s.a-10 AND s.a+10 AND "
_STOCK = "b.symbol = a.symbol AND b.price >= a.price"
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            "handshake",
            ("r", "s"),
            (_handshake_r, _handshake_s),
            on=_HANDSHAKE + "r.y BETWEEN s.b-10 AND s.b+10",
            duckdb_on=_HANDSHAKE + "r.y::DOUBLE BETWEEN s.b::DOUBLE-10 AND s.b::DOUBLE+10",
            window=131_072,
            epoch=262_144,
            cells=_handshake_cells,
        ),
        Workload("equi", ("l", "r"), (_equi, _equi), "l.k = r.k", "l.k = r.k", 1_000_000, 250_000),
        Workload("stock", ("b", "a"), (_stock(-1), _stock(+1)), _STOCK, _STOCK, 131_072, 262_144, True),
        Workload(
            "inequality",
            ("l", "r"),
            (_inequality(+1), _inequality(-1)),
            on="l.v < r.v",
            duckdb_on="l.v < r.v",
            window=131_072,
            epoch=262_144,
            depends_on_window=True,
        ),
        *backfill.WORKLOADS,
    )
}
