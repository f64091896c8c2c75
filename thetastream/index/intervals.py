"""The index shape for the overlap of intervals: classes of equal length, each ordered by the start.

    a.start <= b.end AND b.start <= a.end

A stored interval [start, end] that overlaps the probe [s, e] begins in [s - length, e]. One long interval
would widen this range for all others. Therefore intervals lie in classes by length, whose lengths differ by
less than a factor of ``FACTOR``, and a class has a reach: the length of its longest interval. A probe visits
every class, bisects it at s - reach, walks up to e, and checks the end of each interval.

Any two inequalities that bound one stored column from above and another one from below have this form. The
reach is a difference of encoded keys, so it is exact for every type. A stored row that ends before it starts
has the length 0, which only widens the search.
"""

import numpy as np

from thetastream.core.keys import HIGHEST, Int64s, sort_keys
from thetastream.index.base import (
    Access,
    Fit,
    Floats,
    Indexable,
    Layout,
    LayoutRules,
    ProbeCost,
    Shape,
    Span,
    group_equal_keys,
    visit_all_buckets,
)

FACTOR_BITS = 2
"""The lengths of a class differ by less than 2 to the power of this number."""
_USUAL_CLASSES = 8
"""Assumed number of classes of a run."""


class Intervals(Shape):
    """Classes of intervals by length; the rows of a class are ordered by the start."""

    name = "intervals"
    strength = 15
    needs = "two inequalities that overlap intervals, as in a.start <= b.end AND b.start <= a.end"
    cost = ProbeCost("log n for each class of lengths + tuples that overlap")
    layout = LayoutRules(orders_ends=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        if not offer.overlaps or (offer.bands and not is_asked):
            return None
        return Fit((), offer.overlaps[0], "two inequalities overlap intervals")

    def suffix(self, access: Access) -> int:
        return access.ranges[1]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        from thetastream.kernels.keys import order_inside  # loads Numba

        end, start = (np.ascontiguousarray(rows[:, column]) for column in access.ranges)
        lengths = _measure_lengths(start, end)
        classes = np.frexp(lengths.astype(np.float64))[1] // FACTOR_BITS
        by_class = np.argsort(classes, kind="stable")
        _, offsets = group_equal_keys(classes[by_class])
        reach = np.maximum.reduceat(lengths[by_class], offsets[:-1])
        return Layout(order_inside(by_class, offsets, sort_keys(start)), reach, offsets)

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return visit_all_buckets(edges, n_probes)

    def steps(self, stored: Floats, n_segments: float) -> Floats:
        return _USUAL_CLASSES * super().steps(stored / _USUAL_CLASSES, n_segments)


def _measure_lengths(start: Int64s, end: Int64s) -> Int64s:
    """Return end - start, at least 0 and at most the highest int64.

    >>> top = np.iinfo(np.int64).max
    >>> _measure_lengths(np.array([2, 5, -top]), np.array([5, 2, top])) == np.array([3, 0, top])
    array([ True,  True,  True])
    """
    length = end - start
    is_beyond = (end > start) & (length < 0)
    found: Int64s = np.where(is_beyond, HIGHEST, np.maximum(length, 0))
    return np.where(end > start, found, 0)
