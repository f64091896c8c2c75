"""What an index shape has to offer, and the run it lays out.

A run is an immutable, ordered set of stored tuples: int64 key rows, cut into buckets. A shape
says in which order the rows lie, where buckets begin, and which buckets a probe visits; the kernel
does the rest (``thetastream.kernels.walk``).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from thetastream.kernels.find import find_equal

Int64s = npt.NDArray[np.int64]


class Layout(NamedTuple):
    """How rows are arranged: ``order`` (None: as they come), bucket ``edges`` and ``offsets``.

    ``edges[b]`` is the smallest bucket key in bucket b; ``offsets`` has one entry more.
    """

    order: Int64s | None
    edges: Int64s
    offsets: Int64s


class Span(NamedTuple):
    """Per probe a closed interval [low, high] of encoded keys."""

    low: Int64s
    high: Int64s


@dataclass(frozen=True)
class Access:
    """Which columns of the key rows a shape orders by.

    ``group`` columns are compared for equality, ``ranges`` columns by interval.
    """

    group: tuple[int, ...] = ()
    ranges: tuple[int, ...] = ()


class Shape(Protocol):
    """An index shape. Stateless: all it knows is in the layout."""

    def suffix(self, access: Access) -> int:
        """Column by which rows of one bucket are ordered, or -1."""

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        """Order and buckets for ``rows`` of shape (n, columns)."""

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        """Buckets [low, high) each probe visits.

        ``group`` holds the probes' equality keys folded by ``fold``; ``spans`` one interval per
        column of ``Access.ranges``.
        """


def one_bucket(n_rows: int) -> tuple[Int64s, Int64s]:
    """Edges and offsets of a single bucket."""
    return np.zeros(1, dtype=np.int64), np.array([0, n_rows], dtype=np.int64)


def all_probes(n_probes: int) -> Span:
    """Every probe visits bucket 0."""
    return Span(np.zeros(n_probes, dtype=np.int64), np.ones(n_probes, dtype=np.int64))


def groups(ordered: Int64s) -> tuple[Int64s, Int64s]:
    """Edges and offsets of the groups of equal keys in an ordered column."""
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.append(starts, len(ordered)).astype(np.int64)


def equal_buckets(edges: Int64s, keys: Int64s) -> Span:
    """The one bucket whose edge equals the key, or none."""
    first, last = np.empty_like(keys), np.empty_like(keys)
    find_equal(edges, keys, first, last)
    return Span(first, last)
