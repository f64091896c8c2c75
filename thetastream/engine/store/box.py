"""The box of a probe: an interval for each stored key column that the condition compares.

For a stored tuple s and a probe p, the indexable condition holds iff low_c(p) <= s.c <= high_c(p) for every
column c of the box. The formulas depend on which side of a dimension is stored:

    stored point:   low = p.lower + delta,   high = p.upper + delta
    stored bounds:  s.lower <= p.point - delta,   s.upper >= p.point - delta

The plan of an index says which of these columns it orders by, and so which intervals need no check.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, Never, combine_keys, encode, shift
from thetastream.core.sides import Side
from thetastream.index.base import Access, IndexSpec, Span, SpanTable


def locate_key_column(key: int) -> int:
    """Find the column of the key rows that holds key ``key``. The event time is column 0, and the keys
    follow."""
    return 0 if key == TIME else key + 1


@dataclass(frozen=True)
class Width:
    """A stored interval [lower, upper], as columns of the key rows.

    The index orders by ``lower``. Therefore a probe extends its search downward by the widest stored
    interval.
    """

    lower: int
    upper: int
    domain: Domain


@dataclass(frozen=True)
class IndexPlan:
    """How one stored side is indexed and checked. It is derived once from the condition and the index
    spec."""

    condition: Condition
    stored: Side
    index: IndexSpec
    window_us: int | float | None = None
    """The length of the window in microseconds, or in tuples if the window counts tuples; None without a
    window that is bounded on both ends. By default, it is the length of the condition's window if both bounds
    are one key plus constants. The bounds of a hop are two keys, so its length cannot be seen there."""
    access: Access = field(init=False)
    widths: tuple[Width | None, ...] = field(init=False)
    """The stored interval for each column of ``access.ranges``; None where the interval of a probe is not
    extended."""
    zoned: tuple[int, ...] = field(init=False)
    """The columns of the key rows that have zones: those that a conjunct bounds and that the index does not
    order."""

    def __post_init__(self) -> None:
        stored = self.stored
        dimensions = [self.dimension(position) for position in self.index.dimensions]
        if self.index.shape.layout.orders_ends:
            # The upper end of a stored interval comes first. The probe bounds this column from below.
            dimensions.sort(key=lambda dimension: dimension.bounds_above(stored))
        widths = tuple(self._width(dimension) for dimension in dimensions)
        ranges = tuple(
            width.lower if width else self._range_column(dimension)
            for width, dimension in zip(widths, dimensions, strict=True)
        )
        equalities = [self.condition.equalities[position] for position in self.index.equalities]
        group = tuple(locate_key_column((e.left, e.right)[stored]) for e in equalities)
        if self.window_us is None:
            object.__setattr__(self, "window_us", self._find_window_us())
        object.__setattr__(self, "access", Access(group, ranges))
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "zoned", self._find_zoned())

    def dimension(self, position: int) -> Dimension:
        """Return the dimension at ``position`` of the condition; -1 stands for the window."""
        if position >= 0:
            return self.condition.dimensions[position]
        if self.condition.window is None:
            raise ValueError("the index uses the window, but the condition has no window")
        return self.condition.window

    def _find_zoned(self) -> tuple[int, ...]:
        shape, ordered = self.index.shape, self.access.ranges
        if shape.suffix(self.access) < 0:
            return ()  # values of neighbouring rows have nothing in common
        if shape.layout.orders_ends:
            ordered = ordered[1:]  # the ends of intervals are only checked
        bounded = {
            locate_key_column(key)
            for dimension in self.condition.dimensions
            for key in dimension.list_keys(self.stored)
        }
        return tuple(sorted(bounded - set(ordered)))

    def _find_window_us(self) -> int | float | None:
        window = self.condition.window
        if window is None or window.low is None or window.high is None or window.low.key != window.high.key:
            return None
        return window.high.delta - window.low.delta

    def _width(self, dimension: Dimension) -> Width | None:
        low, high = dimension.low, dimension.high
        if dimension.point is self.stored or low is None or high is None or low.key == high.key:
            return None
        domain = self.condition.sides[self.stored].key(low.key).domain
        return Width(locate_key_column(low.key), locate_key_column(high.key), domain)

    def _range_column(self, dimension: Dimension) -> int:
        if dimension.point is self.stored:
            return locate_key_column(dimension.key)
        bound = dimension.low or dimension.high
        assert bound is not None
        return locate_key_column(bound.key)


@dataclass
class Box:
    """The intervals of n probes over stored columns, by column of the key rows."""

    n_probes: int
    group: Int64s | None
    spans: dict[int, Span]
    never: Never = None
    """Mask of the probes that no tuple can match, because a bound lies beyond int64."""

    shared: set[int] = field(default_factory=set)
    """The columns that more than one conjunct narrows."""
    table: SpanTable | None = None
    """The intervals of an arranged box as a table, of which ``spans`` has the rows."""

    def arrange(self, order: Int64s | None = None) -> "Box":
        """Return the boxes of these probes, by default of all, in this order, with a table of intervals."""
        n = self.n_probes if order is None else len(order)
        low, high = np.empty((2, len(self.spans), n), dtype=np.int64)
        for place, span in enumerate(self.spans.values()):
            for row, ends in ((low[place], span.low), (high[place], span.high)):
                if order is None:
                    row[:] = ends
                else:
                    np.take(ends, order, out=row, mode="clip")  # other modes copy the row
        group = self.group if self.group is None or order is None else self.group[order]
        spans = dict(zip(self.spans, map(Span, low, high), strict=True))
        return Box(n, group, spans, shared=self.shared, table=SpanTable(spans, low, high))

    def part(self, chosen: slice | Int64s) -> "Box":
        """Return the boxes of some probes of an arranged box. Those of a slice are not copied."""
        if not isinstance(chosen, slice):
            return self.arrange(chosen)
        assert self.table is not None
        spans = {column: Span(low[chosen], high[chosen]) for column, (low, high) in self.spans.items()}
        start, stop, _ = chosen.indices(self.n_probes)
        group = None if self.group is None else self.group[chosen]
        table = self.table._replace(spans=spans, start=self.table.start + start)
        return Box(stop - start, group, spans, shared=self.shared, table=table)

    def exclude(self, void: Never) -> None:
        """Add probes to the mask of those that no tuple can match."""
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


def encode_key_rows(side: Side, condition: Condition, batch: pa.RecordBatch) -> Int64s:
    """Encode the event time and the keys of a block as int64 rows of shape (n, 1 + keys), in C order."""
    spec = condition.sides[side]
    rows = np.zeros((batch.num_rows, 1 + len(spec.keys)), dtype=np.int64)
    if spec.time is not None:
        rows[:, 0] = encode(batch.column(spec.time.column), spec.time.domain)
    for position, key in enumerate(spec.keys):
        rows[:, 1 + position] = encode(batch.column(key.column), key.domain, key.offset)
    return rows


def build_box(plan: IndexPlan, probes: Int64s) -> Box:
    """Build the boxes of probing key rows, which belong to the side that is not stored."""
    stored, condition = plan.stored, plan.condition
    result = Box(len(probes), None, {})
    if plan.access.group:
        chosen = [condition.equalities[position] for position in plan.index.equalities]
        result.group = combine_keys(
            [
                np.ascontiguousarray(probes[:, locate_key_column((e.left, e.right)[stored.other])])
                for e in chosen
            ]
        )
    for equality in condition.equalities:
        mine = locate_key_column((equality.left, equality.right)[stored])
        theirs = locate_key_column((equality.left, equality.right)[stored.other])
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


def _narrow_by(result: Box, plan: IndexPlan, dimension: Dimension, probes: Int64s) -> None:
    spec = plan.condition.sides[plan.stored.other]
    if dimension.point is plan.stored:
        ends = [
            None
            if bound is None
            else _end(result, bound, probes, spec.key(bound.key).domain, bound.delta, towards)
            for bound, towards in ((dimension.low, -1), (dimension.high, +1))
        ]
        result.narrow(locate_key_column(dimension.key), *ends)
        return
    # The bounds are stored: low <= point is an upper end for the stored low, and point <= high is a lower end
    # for the stored high.
    domain = spec.key(dimension.key).domain
    for bound, towards in ((dimension.low, +1), (dimension.high, -1)):
        if bound is not None:
            point = replace(bound, key=dimension.key)
            end = _end(result, point, probes, domain, -bound.delta, towards)
            column = locate_key_column(bound.key)
            result.narrow(column, *((None, end) if towards > 0 else (end, None)))


def _end(
    result: Box, bound: Bound, probes: Int64s, domain: Domain, delta: int | float, towards: int
) -> Int64s:
    """Compute one end of each interval: the key of the probe plus delta. Exclude the probes that have no such
    end."""
    keys, void = shift(probes[:, locate_key_column(bound.key)], delta, domain, towards, bound.is_strict)
    result.exclude(void)
    return keys


@dataclass(frozen=True)
class StoredStream:
    """How the tuples of one stream are stored. Picklable. Times are in microseconds."""

    stream: int
    plan: IndexPlan
    """How the tuples are indexed, and how they are checked if a probe has no plan of its own."""
    archive_period_us: int | None
    """Event time of one subindex. None keeps all tuples in one subindex."""
    lifetime_us: int | None
    """How long after its event time a tuple may still find a partner. None means forever."""
