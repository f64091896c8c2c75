"""No order: every stored tuple is a candidate (nested loop in column blocks).

Runs of every shape can be scanned, which a probe does that knows nothing of their keys.
"""

import numpy as np

from thetastream.index.base import Access, Int64s, Layout, Span, one_bucket


class Scan:
    """One bucket, no suffix."""

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(None, *one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        # All buckets: a run of another shape has several.
        return Span(np.zeros(n_probes, dtype=np.int64), np.full(n_probes, len(edges), dtype=np.int64))
