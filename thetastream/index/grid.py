"""The index shape for two bands: equal-depth cells of the first key, each ordered by the second key.

A cell holds about 2 sqrt(n) tuples, whatever the distribution of the keys. A probe visits the cells that its
first interval touches, bisects each cell by its second interval, and checks the first interval while it
walks.
"""

import numpy as np

from thetastream.core.keys import Int64s, sort_keys
from thetastream.index.base import (
    Access,
    Fit,
    Indexable,
    Layout,
    ProbeCost,
    Shape,
    Span,
    find_touched_buckets,
)

MIN_CELL = 64
"""The smallest cell. Smaller cells would cost more in bisections than they save in comparisons."""


class Grid(Shape):
    """Cells of the first range key; the rows of a cell are ordered by the second range key."""

    name = "grid"
    strength = 20
    needs = "two bands (BETWEEN, abs, or the window)"
    cost = ProbeCost("sqrt n cells touched at most + tuples in the box")

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        cells = (*offer.bands, *(offer.window_bands if is_asked else ()))
        return Fit((), cells[:2], "two bands") if len(cells) >= 2 else None

    def suffix(self, access: Access) -> int:
        return access.ranges[1]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        from thetastream.kernels.keys import order_inside  # loads Numba

        n = len(rows)
        first, second = (np.ascontiguousarray(rows[:, column]) for column in access.ranges)
        by_first = sort_keys(first)
        depth = max(MIN_CELL, 2 * int(np.sqrt(n)))
        offsets = np.append(np.arange(0, n, depth, dtype=np.int64), n)
        order = order_inside(by_first, offsets, sort_keys(second))
        return Layout(order, first[by_first[offsets[:-1]]], offsets)

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return find_touched_buckets(edges, spans[0])
