"""The index shapes with one bucket per equality key. ``HashSorted`` also orders each bucket by a range
key."""

from dataclasses import replace

from thetastream.core.keys import Int64s, combine_keys, sort_keys
from thetastream.index.base import (
    Access,
    Fit,
    Indexable,
    Layout,
    LayoutRules,
    ProbeCost,
    Shape,
    Span,
    find_equal_buckets,
    group_equal_keys,
)

_DIRECTORY_BYTES = 16
"""Bytes of an edge and an offset. Every bucket has one of each, and there are at most as many buckets as
tuples."""


class Hash(Shape):
    """One bucket for each distinct key."""

    name = "hash"
    strength = 30
    needs = "an equality"
    cost = ProbeCost("log n + tuples of the bucket", entry_bytes=_DIRECTORY_BYTES)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        return Fit(offer.equalities, (), "equalities") if offer.equalities else None

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        key = combine_keys([rows[:, column] for column in access.group])
        order = sort_keys(key)
        return Layout(order, *group_equal_keys(key[order]))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        assert group is not None
        return find_equal_buckets(edges, group)


class HashSorted(Hash):
    """One bucket for each distinct key; the rows of a bucket are ordered by the range key."""

    name = "hash_sorted"
    strength = 40
    needs = "an equality and a comparison or a window"
    cost = replace(Hash.cost, formula="log n + tuples of the bucket in the interval")
    layout = LayoutRules(bucket_shape=Hash())

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        ranges = offer.comparisons or (offer.window if is_asked else ())
        if not offer.equalities or not ranges:
            return None
        return Fit(offer.equalities, ranges[:1], "equalities, then a range inside a bucket")

    def suffix(self, access: Access) -> int:
        return access.ranges[0]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        from thetastream.kernels.keys import order_inside  # loads Numba

        key = combine_keys([rows[:, column] for column in access.group])
        by_key = sort_keys(key)
        edges, offsets = group_equal_keys(key[by_key])
        by_minor = sort_keys(rows[:, access.ranges[0]])
        return Layout(order_inside(by_key, offsets, by_minor), edges, offsets)
