"""A bucket per equality key; hash + sorted orders each bucket by a range key too."""

import numpy as np

from thetastream.index.base import Access, Int64s, Layout, Span, equal_buckets, groups
from thetastream.kernels.place import ordered_inside
from thetastream.keys import fold


class Hash:
    """One bucket for each distinct key."""

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        key = fold([rows[:, column] for column in access.group])
        order = np.argsort(key)
        return Layout(order, *groups(key[order]))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        assert group is not None
        return equal_buckets(edges, group)


class HashSorted(Hash):
    """One bucket for each distinct key, ordered inside by the range key."""

    def suffix(self, access: Access) -> int:
        return access.ranges[0]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        key = fold([rows[:, column] for column in access.group])
        by_key = np.argsort(key)
        edges, offsets = groups(key[by_key])
        minor = np.ascontiguousarray(rows[:, access.ranges[0]])
        return Layout(ordered_inside(by_key, offsets, minor), edges, offsets)
