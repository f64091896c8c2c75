"""One sorted run: a range, a band, an inequality is one bisection and a walk."""

import numpy as np

from thetastream.index.base import Access, Int64s, Layout, Span, all_probes, one_bucket


class Sorted:
    """One bucket ordered by the range key."""

    def suffix(self, access: Access) -> int:
        return access.ranges[0]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(np.argsort(rows[:, access.ranges[0]], kind="stable"), *one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return all_probes(n_probes)
