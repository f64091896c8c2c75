"""The index shape of one sorted run: a probe with a band or an inequality bisects once and then walks."""

from thetastream.core.keys import Int64s, sort_keys
from thetastream.index.base import (
    Access,
    Fit,
    Indexable,
    Layout,
    LayoutRules,
    ProbeCost,
    Shape,
    Span,
    build_one_bucket,
    visit_all_buckets,
)


class Sorted(Shape):
    """One bucket whose rows are ordered by the range key."""

    name = "sorted"
    strength = 10
    needs = "a comparison or a window"
    cost = ProbeCost("log n + tuples in the interval")
    layout = LayoutRules(has_one_bucket=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        if offer.comparisons:
            return Fit((), offer.comparisons[:1], "one band" if offer.bands else "one inequality")
        if offer.window:
            return Fit((), offer.window, "only the window bounds the partners of a tuple")
        return None

    def suffix(self, access: Access) -> int:
        return access.ranges[0]

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(sort_keys(rows[:, access.ranges[0]], is_stable=True), *build_one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return visit_all_buckets(edges, n_probes)
