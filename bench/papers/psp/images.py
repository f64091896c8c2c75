"""Streams of images, the pixel difference that joins them, and how many results there are.

Stream i is joined with stream i + 1: mean |p - q| over all pixels <= threshold. The threshold is the quantile
of the differences of all pairs inside the window, so the selectivity is what was asked for, whatever the
images. Images are a grey level, random per image, plus random pixels. Arrivals are Poisson.
"""

import sys
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import cloudpickle

from bench.core.internals import Domain, Edge, Ends, GraphPredicate, HopOrders, JoinGraph, Key, SideSpec

ALIASES = "abcdefghi"
START_US = 1_700_000_000_000_000
SECOND = 1_000_000
PIECE = 1 << 25
"""Number of bytes of pixels that are compared at once."""


@dataclass(frozen=True)
class Workload:
    """The parameters of the images. The same parameters make the same images."""

    streams: int = 3
    tuples: int = 240
    """Number of tuples of each stream."""
    per_window: float = 48
    """Mean number of tuples of a stream in its window."""
    selectivity: float = 0.1
    pixels: int = 10_000
    seed: int = 1
    doubles: bool = False
    """Whether the rate of arrivals doubles in the middle of event time."""

    @property
    def window_us(self) -> int:
        """A stream brings one tuple a second."""
        return round(self.per_window * SECOND)

    def scaled(self, scale: float) -> "Workload":
        """Return a workload of fewer tuples, smaller images and a window of a quarter of the tuples."""
        if scale >= 1:
            return self
        tuples = round(self.tuples * scale)
        window = min(self.per_window, tuples / 4)
        return replace(self, tuples=tuples, per_window=window, pixels=round(self.pixels * scale))


class Streams:
    def __init__(self, work: Workload) -> None:
        self.work = work
        random = np.random.default_rng(work.seed)
        gaps = random.exponential(1.0, (work.streams, work.tuples))
        if work.doubles:
            # The first third of the tuples arrives in one half of the time, and the rest in the other half.
            gaps[:, work.tuples // 3 :] /= 2
        self.times = START_US + np.round(np.cumsum(gaps, axis=1) * SECOND).astype(np.int64)
        levels = random.integers(0, 200, (work.streams, work.tuples, 1), dtype=np.uint8)
        noise = random.integers(0, 56, (work.streams, work.tuples, work.pixels), dtype=np.uint8)
        self.images = levels + noise

    @property
    def end_us(self) -> int:
        return int(self.times.max())

    def table(self, stream: int, prefix: str = "") -> pa.Table:
        images = pa.array([image.tobytes() for image in self.images[stream]], pa.binary())
        ids = np.arange(self.work.tuples)
        names = [f"{prefix}{name}" for name in ("id", "t", "img")]
        return pa.table([pa.array(ids), pa.array(self.times[stream]), images], names)

    @cached_property
    def _apart(self) -> list[npt.NDArray[np.float64]]:
        """The differences of the images of neighbouring streams; inf outside the window."""
        found = []
        for left in range(self.work.streams - 1):
            inside = self._inside(left, left + 1)
            rows, columns = np.nonzero(inside)
            apart = np.full(inside.shape, np.inf)
            step = max(1, PIECE // self.work.pixels)
            for start in range(0, len(rows), step):
                i, j = rows[start : start + step], columns[start : start + step]
                apart[i, j] = difference(self.images[left][i], self.images[left + 1][j])
            found.append(apart)
        return found

    def _inside(self, left: int, right: int) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (
            np.abs(self.times[left][:, None] - self.times[right][None, :]) <= self.work.window_us
        )
        return inside

    @cached_property
    def threshold(self) -> float:
        """The largest difference of images that join."""
        known = np.concatenate([apart[np.isfinite(apart)] for apart in self._apart])
        return float(np.quantile(known, self.work.selectivity))

    @cached_property
    def expected(self) -> int:
        """The number of results, by nested loop."""
        found = np.arange(self.work.tuples)[:, None]
        for stream in range(1, self.work.streams):
            fits = self._apart[stream - 1][found[:, -1]] <= self.threshold
            for member in range(stream):
                fits &= self._inside(member, stream)[found[:, member]]
            rows, partners = np.nonzero(fits)
            found = np.column_stack([found[rows], partners])
        return len(found)

    @cached_property
    def graph(self) -> JoinGraph:
        m, window = self.work.streams, self.work.window_us
        sides = tuple(
            SideSpec(
                ALIASES[n],
                tuple(f"s{n}{name}" for name in ("id", "t", "img")),
                time=Key(f"s{n}t", Domain.INT),
            )
            for n in range(m)
        )
        edges = {(i, j): Edge(window=Ends(-window, window)) for i in range(m) for j in range(i + 1, m)}
        predicates = tuple(
            GraphPredicate(
                "alike",
                alike(ALIASES[n], ALIASES[n + 1], self.threshold),
                tuple((i, ALIASES[i], (("img", f"s{i}img"),)) for i in (n, n + 1)),
            )
            for n in range(m - 1)
        )
        return JoinGraph(sides, edges, predicates)

    @property
    def orders(self) -> HopOrders:
        """The orders of hops: up to the last stream, and then down to the first."""
        m = self.work.streams
        return tuple((*range(n + 1, m), *range(n - 1, -1, -1)) for n in range(m))


@lru_cache(maxsize=4)
def streams_of(work: Workload) -> Streams:
    return Streams(work)


def difference(p: npt.NDArray[np.uint8], q: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Compute the mean |p - q| of each pair of images, of shape (n, pixels)."""
    apart = np.maximum(p, q)
    apart -= np.minimum(p, q)
    found: npt.NDArray[np.float64] = apart.sum(axis=1, dtype=np.uint32) / p.shape[1]
    return found


def pixels(images: pa.Array) -> npt.NDArray[np.uint8]:
    """Read binary values of one length as rows."""
    images = images.combine_chunks() if isinstance(images, pa.ChunkedArray) else images
    n = len(images)
    offsets = np.frombuffer(images.buffers()[1], np.int32)[images.offset : images.offset + n + 1]
    return np.frombuffer(images.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(n, -1)


def alike(left: str, right: str, threshold: float) -> Any:
    def is_alike(**streams: Any) -> npt.NDArray[np.bool_]:
        p, q = pixels(streams[left].img), pixels(streams[right].img)
        found = np.empty(len(p), dtype=np.bool_)
        step = max(1, (1 << 18) // p.shape[1])  # Such a piece stays in the cache.
        for start in range(0, len(p), step):
            piece = slice(start, start + step)
            found[piece] = difference(p[piece], q[piece]) <= threshold
        return found

    return is_alike


# Spark's workers cannot import this package.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
