"""An index shape from outside the package: it compares tiles of probes with tiles of stored rows.

For a tile P of probes and a tile R of rows, it computes the matrix

    inside[p, r] = AND over columns c:  low_c(p) <= r.c <= high_c(p)

with whole-array operations. They are its ``match``, in place of the compiled loop of the package.
"""

from collections.abc import Iterator

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.index import (
    Access,
    Fit,
    Indexable,
    Layout,
    Pairs,
    ProbeCost,
    Search,
    Shape,
    Span,
    StoredRows,
)
from thetastream.index.base import build_one_bucket, visit_all_buckets

SIDE = 5
"""The number of probes and of rows of a tile. It is small, so that a few rows need several tiles."""


class Tiles(Shape):
    """Every stored tuple is a candidate, one tile at a time."""

    name = "outside_tiles"
    strength = 60
    needs = "a comparison"
    cost = ProbeCost("n comparisons in tiles", looks_at_all=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        return Fit((), (), "a comparison") if offer.comparisons else None

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(None, *build_one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return visit_all_buckets(edges, n_probes)

    def match(self, run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs]:
        for top in range(0, search.n_probes, SIDE):
            for left in range(0, len(run.rows), SIDE):
                tile = run.rows[left : left + SIDE]
                inside = np.ones((min(SIDE, search.n_probes - top), len(tile)), dtype=np.bool_)
                for column, (low, high) in search.checked.items():
                    values = tile[:, column]
                    inside &= low[top : top + SIDE, None] <= values
                    inside &= values <= high[top : top + SIDE, None]
                probes, stored = np.nonzero(inside)
                # A tile has fewer pairs than any capacity.
                yield Pairs(top + probes, left + stored, inside.size)
