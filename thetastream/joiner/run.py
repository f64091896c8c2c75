"""A run: stored tuples of one side, ordered, immutable, with the arrays their index needs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.condition import Domain
from thetastream.index import REGISTRY
from thetastream.index.base import Span
from thetastream.joiner.box import Box, Plan, Width, key_rows
from thetastream.kernels.walk import walk
from thetastream.keys import HIGHEST, LOWEST, Int64s, decode_floats, shift

Pairs = tuple[Int64s, Int64s]
"""Positions of matching probes and stored rows."""


@dataclass(frozen=True)
class Run:
    """Payload and index of a set of stored tuples.

    ``rows`` is int64 of shape (n, 1 + keys), row i belonging to ``payload`` row i.
    """

    payload: pa.RecordBatch
    rows: Int64s
    edges: Int64s
    offsets: Int64s
    widths: tuple[float, ...]
    """Per range column the widest stored interval, in the domain's unit; 0 where there is none."""

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory the run occupies: its share of the unit's memory load volume."""
        return int(self.payload.nbytes) + self.rows.nbytes + self.edges.nbytes + self.offsets.nbytes


def build(plan: Plan, payload: pa.RecordBatch, rows: Int64s | None = None) -> Run:
    """Order ``payload`` by the plan's index and lay out its buckets."""
    if rows is None:
        rows = key_rows(plan.stored, plan.condition, payload)
    layout = REGISTRY[plan.index.kind].arrange(plan.access, rows)
    if layout.order is not None:
        payload, rows = payload.take(layout.order), rows[layout.order]
    widths = tuple(_widest(rows, width) for width in plan.widths)
    return Run(payload, np.ascontiguousarray(rows), layout.edges, layout.offsets, widths)


def _widest(rows: Int64s, width: Width | None) -> float:
    if width is None or not len(rows):
        return 0
    lower, upper = rows[:, width.lower], rows[:, width.upper]
    if width.domain in (Domain.FLOAT, Domain.WIDE_DECIMAL):
        with np.errstate(invalid="ignore", over="ignore"):
            widest = float(np.max(decode_floats(upper) - decode_floats(lower)))
        # Rounded up: a width rounded down would hide intervals that just reach the probe.
        return float(np.nextafter(widest, np.inf)) if np.isfinite(widest) else np.inf
    widest_int = int(np.max(_saturating_difference(upper, lower)))
    return np.inf if widest_int == HIGHEST else max(widest_int, 0)


def _saturating_difference(a: Int64s, b: Int64s) -> Int64s:
    difference = a - b
    overflowed = ((a ^ b) & (a ^ difference)) < 0
    return np.where(overflowed, np.where(a < 0, np.int64(LOWEST), np.int64(HIGHEST)), difference)


def search(
    plan: Plan, run: Run, box: Box, chosen: npt.NDArray[np.int64] | None, skip: frozenset[int], capacity: int
) -> Iterator[tuple[Int64s, Int64s, int]]:
    """Pairs of (probe, stored row) inside the boxes, at most ``capacity`` at a time.

    ``chosen`` restricts to some probes, ``skip`` names columns that need no check. Yields the two
    position arrays and the number of candidates the walk looked at since the last yield.
    """
    shape = REGISTRY[plan.index.kind]

    def pick(keys: Int64s) -> Int64s:
        return keys if chosen is None else keys[chosen]

    n_probes = box.n_probes if chosen is None else len(chosen)
    # 1. Intervals on the indexed columns, widened where intervals are stored.
    spans = []
    # A plan that scans a run of another index, or uses its buckets alone, has no ranges.
    for column, width, widest in zip(plan.access.ranges, plan.widths, run.widths, strict=False):
        low, high = pick(box.spans[column].low), pick(box.spans[column].high)
        if width is not None:
            reach, _ = shift(pick(box.spans[width.upper].low), -widest, width.domain, -1)
            low = np.maximum(low, reach)
        spans.append(Span(low, high))
    group = None if box.group is None else pick(box.group)
    buckets = shape.buckets(run.edges, n_probes, group, tuple(spans))
    suffix = shape.suffix(plan.access)
    answered = set(skip)
    if suffix >= 0:
        answered.add(suffix)
        slo, shi = np.ascontiguousarray(spans[-1].low), np.ascontiguousarray(spans[-1].high)
    else:
        slo = shi = np.zeros(0, dtype=np.int64)
    if len(plan.access.group) == 1 and not box.shared.intersection(plan.access.group):
        answered.update(plan.access.group)
    # 2. Whatever the index does not answer is checked while walking.
    columns = [column for column in box.spans if column not in answered]
    lo = np.empty((n_probes, len(columns)), dtype=np.int64)
    hi = np.empty_like(lo)
    for j, column in enumerate(columns):
        lo[:, j], hi[:, j] = pick(box.spans[column].low), pick(box.spans[column].high)
    cursor = np.array([0, -1, -1, 0], dtype=np.int64)
    first, last = (np.ascontiguousarray(edge, dtype=np.int64) for edge in buckets)
    wanted = np.array(columns, dtype=np.int64)
    while True:
        out_probe, out_stored = np.empty(capacity, dtype=np.int64), np.empty(capacity, dtype=np.int64)
        cursor[3] = 0
        n = walk(
            run.rows,
            run.offsets,
            suffix,
            first,
            last,
            slo,
            shi,
            wanted,
            lo,
            hi,
            cursor,
            out_probe,
            out_stored,
        )
        probes = out_probe[:n] if chosen is None else chosen[out_probe[:n]]
        yield probes, out_stored[:n], int(cursor[3])
        if n < capacity:
            return
