"""The index shape without an order: every stored tuple is a candidate (a nested loop in column blocks).

A probe can scan runs of every shape. It does so if its condition does not use the keys of the run.
"""

from thetastream.core.keys import Int64s
from thetastream.index.base import (
    CANDIDATE_S,
    Access,
    Fit,
    Floats,
    Indexable,
    Layout,
    LayoutRules,
    ProbeCost,
    Shape,
    Span,
    build_one_bucket,
    visit_all_buckets,
)


class Scan(Shape):
    """One bucket without a suffix."""

    name = "scan"
    strength = 0
    needs = "nothing"
    cost = ProbeCost("n comparisons", step_s=CANDIDATE_S, looks_at_all=True)
    layout = LayoutRules(has_one_bucket=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        return Fit((), (), "nothing in the condition is indexable")

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(None, *build_one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        # The probe visits all buckets, because a run of another shape has several.
        return visit_all_buckets(edges, n_probes)

    def steps(self, stored: Floats, n_segments: float) -> Floats:
        return stored
