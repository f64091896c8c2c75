"""Where the rows of a table lie, so that a task opens few runs of a table that is larger than a host.

    run r          the least and the greatest value of each column of its key rows
    tuple p        meets run r  iff  its box touches all these intervals
    partition i    the tuples with  edges[i - 1] <= value(p) < edges[i]

The value of a tuple is the least value that a certain column of its partners may have: the key of an
equality, or the lower end of a band. Tuples of one partition meet few runs, because the rows of a large table
are cut by this column. A partition only says where a tuple is looked up. There it meets all runs that it
touches, so results do not depend on the edges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import HIGHEST, LOWEST, Int64s
from thetastream.engine.store.box import Box, IndexPlan, build_box, encode_key_rows, locate_key_column


@dataclass(frozen=True)
class RunExtent:
    """How large a run is, and where its rows lie."""

    nbytes: int
    """The bytes of its file."""
    bounds: tuple[tuple[int, int], ...]
    """The least and the greatest value of each column of its key rows."""


def find_bounds(rows: Int64s) -> list[list[int]]:
    """Find the least and the greatest value of each column of key rows.

    >>> find_bounds(np.array([[0, 7], [0, 5]]))
    [[0, 0], [5, 7]]
    """
    ends = rows.min(axis=0, initial=HIGHEST), rows.max(axis=0, initial=LOWEST)
    return [list(found) for found in zip(*(end.tolist() for end in ends), strict=True)]


class Extents:
    """The extents of the runs of a version of a table, as arrays."""

    def __init__(self, extents: Sequence[RunExtent]) -> None:
        self.nbytes = np.array([one.nbytes for one in extents], dtype=np.int64)
        bounds = np.array([one.bounds for one in extents], dtype=np.int64)
        self.ends = bounds.transpose(1, 2, 0) if extents else np.zeros((0, 2, 0), dtype=np.int64)
        """The least and the greatest values, of shape (columns, 2, runs)."""

    def find_touched(self, box: Box) -> Int64s:
        """List the runs in which some probe may have a partner."""
        if not box.n_probes or not len(self.nbytes):
            return np.zeros(0, dtype=np.int64)
        is_near = np.ones(len(self.nbytes), dtype=np.bool_)
        for column, (low, high) in box.spans.items():
            least, greatest = self.ends[column]
            is_near &= (low.min() <= greatest) & (high.max() >= least)
        return np.array(
            [run for run in np.flatnonzero(is_near).tolist() if self._is_touched(run, box)], np.int64
        )

    def _is_touched(self, run: int, box: Box) -> bool:
        touches = np.ones(box.n_probes, dtype=np.bool_)
        for column, (low, high) in box.spans.items():
            least, greatest = self.ends[column][:, run]
            touches &= (low <= greatest) & (high >= least)
        return bool(touches.any())


@dataclass(frozen=True)
class Partitioning:
    """By which columns of the key rows a table, and the tuples that are looked up in it, are divided.

    A partner r of a tuple p satisfies value(p) <= r.upper, and r.lower <= some other bound of p.
    """

    cut: int
    """The column by which the rows of a large table are cut."""
    lower: int
    upper: int
    """For an equality, or a band over one column of the table, all three are this column."""

    @classmethod
    def of(cls, plan: IndexPlan) -> "Partitioning | None":
        """Find how tuples can be divided; None if nothing bounds the partners of a tuple at both ends."""
        group, ranges = plan.access.group, plan.access.ranges
        if group:
            return cls(group[0], group[0], group[0])
        if len(ranges) == 2 and plan.index.shape.layout.orders_ends:
            return cls(ranges[0], ranges[1], ranges[0])
        for dimension in plan.condition.dimensions:
            columns = [locate_key_column(key) for key in dimension.list_keys(plan.stored)]
            if dimension.is_two_sided and ranges[:1] and ranges[0] in columns:
                return cls(ranges[0], columns[0], columns[-1])
        return None

    def find_edges(self, extents: Extents, n_partitions: int) -> Int64s:
        """Divide the values of tuples so that the runs of each partition have about as many bytes.

        Returns
        -------
        int64, shape (n,)
            Where each partition but the first begins, in ascending order. There are fewer than
            ``n_partitions`` of them, and still fewer if many runs begin at one value.

        Examples
        --------
        >>> runs = Extents([RunExtent(10, ((10 * n, 10 * n + 9),)) for n in range(6)])
        >>> Partitioning(0, 0, 0).find_edges(runs, 3).tolist()
        [20, 40]
        """
        if not len(extents.nbytes):
            return np.zeros(0, dtype=np.int64)
        starts = extents.ends[self.cut][0]
        order = np.argsort(starts, kind="stable")
        nbytes = extents.nbytes[order]
        shares = nbytes.sum() * np.arange(1, n_partitions) // n_partitions
        places = np.searchsorted(np.cumsum(nbytes) - nbytes, shares)
        return np.unique(starts[order][places[places < len(order)]])

    def measure(self, extents: Extents, edges: Int64s) -> list[int]:
        """Measure the bytes of the runs that the tuples of each partition may meet.

        Runs that a long band of a tuple reaches beyond its partition do not count.
        """
        if not len(extents.nbytes):
            return [0]
        begins, ends = np.append(LOWEST, edges), np.append(edges - 1, HIGHEST)
        reaches, starts = extents.ends[self.upper][1], extents.ends[self.lower][0]
        return [
            int(extents.nbytes[(reaches >= begin) & (starts <= end)].sum())
            for begin, end in zip(begins, ends, strict=True)
        ]

    def choose(self, plan: IndexPlan, tuples: pa.RecordBatch, edges: Int64s) -> npt.NDArray[np.int32]:
        """Choose the partition of each tuple. All of them have passed the filters of their stream."""
        box = build_box(plan, encode_key_rows(plan.stored.other, plan.condition, tuples))
        return np.searchsorted(edges, box.spans[self.upper].low, side="right").astype(np.int32)
