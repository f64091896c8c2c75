"""Semantic load shedding: the tuples that probably have the fewest partners are dropped first.

    cell of a tuple      its place (``content_routing``), hashed into one of ``CELLS`` cells
    partners of a cell   the tuples of the other stream that came lately into this cell and were kept
    order of dropping    cells with few partners first, until the share that the load asks for is dropped

ESJ drops any tuples. Das, Gehrke and Riedewald (SIGMOD 2003) drop by the frequency of the partners, which
keeps most of the results. Here the counts are those of the epochs before, so that all routers of an epoch
have the same ones, and an epoch that runs again drops the same tuples.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s, scramble
from thetastream.core.sides import Side
from thetastream.engine.inbox import ShedReport
from thetastream.engine.routing import FindPlaces

CELLS = 256
DECAY = 0.8
"""How much the counts of the epochs before weigh beside those of an epoch."""

Floats = npt.NDArray[np.float64]


def find_cells(places: FindPlaces, stream: int, batch: pa.RecordBatch) -> Int64s:
    """Find the cells of the tuples of a block."""
    hashed = scramble(places(Side(stream), batch).own)
    cells: Int64s = hashed & np.int64(CELLS - 1)
    return cells


def count_cells(cells: Int64s) -> Int64s:
    """Count the tuples in each cell."""
    return np.bincount(cells, minlength=CELLS)


@dataclass(frozen=True)
class CellCounts:
    """How many tuples came lately into each cell, as numbers of shape (2, ``CELLS``)."""

    arrived: Floats
    """The tuples of each stream, dropped ones included."""
    kept: Floats
    """Those that later tuples of the other stream can find."""

    @classmethod
    def begin(cls) -> "CellCounts":
        """Return the counts before the first epoch."""
        return cls(np.zeros((2, CELLS)), np.zeros((2, CELLS)))

    def add(self, reports: Iterable[ShedReport]) -> "CellCounts":
        """Add the tuples of an epoch, as its routers have reported them."""
        arrived, kept = DECAY * self.arrived, DECAY * self.kept
        for report in reports:
            if report.arrived is not None and report.kept is not None:
                arrived[report.stream] += report.arrived
                kept[report.stream] += report.kept
        return CellCounts(arrived, kept)

    def compute_shares(self, stream: int, factor: float) -> Floats:
        """Compute which share of the tuples of each cell is dropped, so that ``factor`` of all are.

        Cells with equally many partners lose the same share.

        >>> counts = CellCounts.begin()
        >>> counts.arrived[0, :4], counts.kept[1, :4] = [10, 10, 10, 10], [0, 5, 5, 9]
        >>> counts.compute_shares(0, 0.5)[:4].tolist()
        [1.0, 0.5, 0.5, 0.0]
        """
        own = self.arrived[stream]
        if not own.any():
            return np.full(CELLS, factor)
        _, rank = np.unique(self.kept[1 - stream], return_inverse=True)
        by_rank = np.bincount(rank, weights=own)
        left = factor * own.sum() - (np.cumsum(by_rank) - by_rank)
        # Cells into which no tuple came lately count as those with as many partners.
        shares = np.where(by_rank > 0, left / np.where(by_rank > 0, by_rank, 1.0), np.sign(left))
        clipped: Floats = np.clip(shares, 0.0, 1.0)[rank]
        return clipped

    def encode(self) -> str:
        """Write the counts as JSON."""
        return json.dumps([self.arrived.round(3).tolist(), self.kept.round(3).tolist()])

    @classmethod
    def decode(cls, text: str) -> "CellCounts":
        """Read what ``encode`` returned.

        Raises
        ------
        ValueError
            If the text is another one.
        """
        arrived, kept = (np.array(one, dtype=np.float64) for one in json.loads(text))
        if arrived.shape != (2, CELLS) or kept.shape != (2, CELLS):
            raise ValueError(f"it must have two times {CELLS} numbers twice")
        return cls(arrived, kept)
