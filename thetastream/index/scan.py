"""No order: every stored tuple is a candidate (nested loop in column blocks)."""

from thetastream.index.base import Access, Int64s, Layout, Span, all_probes, one_bucket


class Scan:
    """One bucket, no suffix."""

    def suffix(self, access: Access) -> int:
        return -1

    def arrange(self, access: Access, rows: Int64s) -> Layout:
        return Layout(None, *one_bucket(len(rows)))

    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        return all_probes(n_probes)
