"""A probe as a box: for each stored key column that the condition touches, an interval.

For a stored tuple s and a probe p the indexable condition holds iff low_c(p) <= s.c <= high_c(p)
for every column c of the box. Which side is stored changes only the signs:

    stored point:   low = p.lower + delta,   high = p.upper + delta
    stored bounds:  s.lower <= p.point - delta,   s.upper >= p.point - delta
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from thetastream.condition import TIME, Bound, Condition, Dimension, Domain, IndexSpec
from thetastream.index.base import Access, Span
from thetastream.keys import HIGHEST, LOWEST, Int64s, Never, encode, fold, shift
from thetastream.types import Side


def row_column(key: int) -> int:
    """Column of the key rows that holds key ``key``: the event time first, then the keys."""
    return 0 if key == TIME else key + 1


@dataclass(frozen=True)
class Width:
    """A stored interval [lower, upper]: indexed by ``lower``, so a probe looks back by the widest."""

    lower: int
    upper: int
    domain: Domain


@dataclass(frozen=True)
class Plan:
    """How one stored side is indexed and checked; derived once from condition and index spec."""

    condition: Condition
    stored: Side
    index: IndexSpec
    access: Access = field(init=False)
    widths: tuple[Width | None, ...] = field(init=False)
    """One per ``access.ranges``; None where a probe's interval needs no widening."""

    def __post_init__(self) -> None:
        stored = self.stored
        dimensions = [self.dimension(position) for position in self.index.dimensions]
        widths = tuple(self._width(dimension) for dimension in dimensions)
        ranges = tuple(
            width.lower if width else self._range_column(dimension)
            for width, dimension in zip(widths, dimensions, strict=True)
        )
        equalities = [self.condition.equalities[position] for position in self.index.equalities]
        group = tuple(row_column((e.left, e.right)[stored]) for e in equalities)
        object.__setattr__(self, "access", Access(group, ranges))
        object.__setattr__(self, "widths", widths)

    def dimension(self, position: int) -> Dimension:
        """Dimension at ``position`` of the condition; -1 is the window."""
        if position >= 0:
            return self.condition.dimensions[position]
        if self.condition.window is None:
            raise ValueError("index over the window of a condition that has none")
        return self.condition.window

    def _width(self, dimension: Dimension) -> Width | None:
        low, high = dimension.low, dimension.high
        if dimension.point is self.stored or low is None or high is None or low.key == high.key:
            return None
        domain = self.condition.sides[self.stored].key(low.key).domain
        return Width(row_column(low.key), row_column(high.key), domain)

    def _range_column(self, dimension: Dimension) -> int:
        if dimension.point is self.stored:
            return row_column(dimension.key)
        bound = dimension.low or dimension.high
        assert bound is not None
        return row_column(bound.key)


@dataclass
class Box:
    """Intervals of n probes over stored columns, keyed by column of the key rows."""

    n_probes: int
    group: Int64s | None
    spans: dict[int, Span]
    never: Never = None
    """Probes that nothing can match (a bound beyond the edge of int64)."""

    shared: set[int] = field(default_factory=set)
    """Columns that more than one conjunct narrows."""

    def reordered(self, order: Int64s) -> "Box":
        """The same boxes in another order of the probes."""
        spans = {column: Span(span.low[order], span.high[order]) for column, span in self.spans.items()}
        group = None if self.group is None else self.group[order]
        return Box(self.n_probes, group, spans, shared=self.shared)

    def exclude(self, void: Never) -> None:
        """Note probes that nothing can match."""
        if void is not None:
            self.never = void if self.never is None else self.never | void

    def narrow(self, column: int, low: Int64s | None, high: Int64s | None) -> None:
        """Intersect the interval of ``column`` with [low, high]."""
        old = self.spans.get(column)
        if old is not None:
            self.shared.add(column)
        low = np.full(self.n_probes, LOWEST) if low is None else low
        high = np.full(self.n_probes, HIGHEST) if high is None else high
        if old is not None:
            low, high = np.maximum(low, old.low), np.minimum(high, old.high)
        self.spans[column] = Span(low, high)


def key_rows(side: Side, condition: Condition, batch: pa.RecordBatch) -> Int64s:
    """Encoded event time and keys of a block, shape (n, 1 + keys), int64, C order."""
    spec = condition.sides[side]
    rows = np.zeros((batch.num_rows, 1 + len(spec.keys)), dtype=np.int64)
    if spec.time is not None:
        rows[:, 0] = encode(batch.column(spec.time.column), spec.time.domain)
    for position, key in enumerate(spec.keys):
        rows[:, 1 + position] = encode(batch.column(key.column), key.domain, key.offset)
    return rows


def box(plan: Plan, probes: Int64s) -> Box:
    """The boxes of probing key rows (of the side that is not stored)."""
    stored, condition = plan.stored, plan.condition
    result = Box(len(probes), None, {})
    if plan.access.group:
        chosen = [condition.equalities[position] for position in plan.index.equalities]
        result.group = fold(
            [np.ascontiguousarray(probes[:, row_column((e.left, e.right)[stored.other])]) for e in chosen]
        )
    for equality in condition.equalities:
        mine = row_column((equality.left, equality.right)[stored])
        theirs = row_column((equality.left, equality.right)[stored.other])
        result.narrow(mine, probes[:, theirs], probes[:, theirs])
    for dimension in condition.dimensions:
        _narrow_by(result, plan, dimension, probes)
    if condition.window is not None:
        _narrow_by(result, plan, condition.window, probes)
    if result.never is not None:
        for column, span in result.spans.items():
            low = np.where(result.never, HIGHEST, span.low)
            result.spans[column] = Span(low, np.where(result.never, LOWEST, span.high))
    return result


def _narrow_by(result: Box, plan: Plan, dimension: Dimension, probes: Int64s) -> None:
    spec = plan.condition.sides[plan.stored.other]
    if dimension.point is plan.stored:
        ends = [
            None
            if bound is None
            else _end(result, bound, probes, spec.key(bound.key).domain, bound.delta, towards)
            for bound, towards in ((dimension.low, -1), (dimension.high, +1))
        ]
        result.narrow(row_column(dimension.key), *ends)
        return
    # low <= point turns into an upper end for the stored low, and the other way round.
    domain = spec.key(dimension.key).domain
    for bound, towards in ((dimension.low, +1), (dimension.high, -1)):
        if bound is not None:
            point = replace(bound, key=dimension.key)
            end = _end(result, point, probes, domain, -bound.delta, towards)
            column = row_column(bound.key)
            result.narrow(column, *((None, end) if towards > 0 else (end, None)))


def _end(
    result: Box, bound: Bound, probes: Int64s, domain: Domain, delta: int | float, towards: int
) -> Int64s:
    """One end of an interval: the probe's key plus delta; void ends are noted."""
    keys, void = shift(probes[:, row_column(bound.key)], delta, domain, towards, bound.is_strict)
    result.exclude(void)
    return keys
