"""Two bands: equal-depth cells of the first key, each ordered by the second.

Cells hold about 2 sqrt(n) tuples each, whatever the distribution. A probe visits the cells its
first interval touches, bisects each by its second interval, and checks the first on the way.
"""

import numpy as np

from thetastream.index.base import Access, Int64s, Layout, Span
from thetastream.kernels.place import ordered_inside

MIN_CELL = 64
"""Fewer tuples to a cell would cost more bisections than they save comparisons."""


class Grid:
    """Cells of the first range key, ordered inside by the second."""

    def suffix(self, access: Access) -> int:
        return access.ranges[1]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        n = len(rows)
        first, second = (np.ascontiguousarray(rows[:, column]) for column in access.ranges)
        by_first = np.argsort(first)
        depth = max(MIN_CELL, 2 * int(np.sqrt(n)))
        offsets = np.append(np.arange(0, n, depth, dtype=np.int64), n)
        order = ordered_inside(by_first, offsets, second)
        return Layout(order, first[by_first[offsets[:-1]]], offsets)

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        # Equal keys may straddle an edge, so the cell before the first edge >= low counts too.
        low = np.maximum(np.searchsorted(edges, spans[0].low, side="left") - 1, 0)
        return Span(low, np.searchsorted(edges, spans[0].high, side="right"))
