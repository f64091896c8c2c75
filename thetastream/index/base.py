"""The base class of index shapes, and the layout of a run that a shape defines.

A run is an immutable, ordered set of stored tuples: int64 key rows that are cut into buckets. A shape defines
the order of the rows, the first row of each bucket, and the buckets that a probe visits. Unless the shape
brings a kernel of its own (``Shape.match``), ``thetastream.kernels.walk`` does the rest.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.condition import TIME, Condition, RankedPair
from thetastream.core.keys import HIGHEST, Int64s
from thetastream.core.measure import NO_VALUES, MeasureLimit, Values
from thetastream.core.row_limit import RowLimit
from thetastream.core.sides import Side
from thetastream.index.zones import find_levels

Floats = npt.NDArray[np.float64]
_NOTHING = np.zeros(0, dtype=np.int64)

INSERT_S = 0.25e-6
"""Seconds to order and lay out one stored tuple."""
BISECTION_S, CANDIDATE_S = 5e-9, 20e-9
"""Seconds for one step of a search, and seconds to compare one stored tuple. Both were measured on 2 cores
(docs/guide/choosing-a-model.md). Only their ratio matters for a choice."""


class Layout(NamedTuple):
    """The arrangement of rows in buckets.

    ``order`` lists the row numbers in the new order; None keeps the rows as they are. ``edges[b]`` is the
    smallest bucket key in bucket b. Bucket b holds the rows from ``offsets[b]`` to ``offsets[b + 1]``.
    """

    order: Int64s | None
    edges: Int64s
    offsets: Int64s


class Span(NamedTuple):
    """A closed interval [low, high] of encoded keys for each probe."""

    low: Int64s
    high: Int64s


class SpanTable(NamedTuple):
    """The intervals of many probes, as a table with a row for each column."""

    spans: dict[int, Span]
    """For each column of the key rows the intervals of the probes of a search, which are a part of a row."""
    low: Int64s
    """The lower ends, of shape (columns, probes)."""
    high: Int64s
    start: int = 0
    """The first probe of the search. The table may also have probes before it and behind the last one."""


@dataclass(frozen=True)
class Access:
    """The columns of the key rows that a shape orders by.

    Probes compare ``group`` columns for equality and ``ranges`` columns with an interval.
    """

    group: tuple[int, ...] = ()
    ranges: tuple[int, ...] = ()


class Indexable(NamedTuple):
    """The parts of a condition that an index can evaluate, as positions that ``IndexSpec`` accepts.

    In each field the part that an index should prefer comes first.
    """

    equalities: tuple[int, ...]
    bands: tuple[int, ...]
    """Dimensions that are bounded on both ends."""
    comparisons: tuple[int, ...]
    """All dimensions; bands come first."""
    window: tuple[int, ...]
    """``(TIME,)`` if the condition has a window, else empty."""
    window_bands: tuple[int, ...]
    """``(TIME,)`` if the window is bounded on both ends, else empty."""
    overlaps: tuple[tuple[int, int], ...] = ()
    """Pairs of one-sided dimensions, of which one bounds stored tuples from above and the other one from
    below, over different keys of one domain: the overlap of intervals."""
    has_measure: bool = False
    """Whether a measure is compared with a constant or with thresholds, or ranks partners."""

    @classmethod
    def of(cls, condition: Condition) -> "Indexable":
        """List the parts of ``condition`` that an index can evaluate."""
        every = range(len(condition.dimensions))
        bands = tuple(n for n in every if condition.dimensions[n].is_two_sided)
        window = () if condition.window is None else (TIME,)
        return cls(
            equalities=tuple(range(len(condition.equalities))),
            bands=bands,
            comparisons=(*bands, *(n for n in every if n not in bands)),
            window=window,
            window_bands=window if condition.window is not None and condition.window.is_two_sided else (),
            overlaps=tuple(_find_overlaps(condition)),
            has_measure=condition.ranked is not None
            or any(not (one.limit.measure.is_cheap and every) for one in condition.measured),
        )


def _find_overlaps(condition: Condition) -> Iterator[tuple[int, int]]:
    """Yield the pairs of dimensions that overlap intervals."""
    open_ended = [
        (position, dimension)
        for position, dimension in enumerate(condition.dimensions)
        if not dimension.is_two_sided
    ]
    for (first, one), (second, other) in combinations(open_ended, 2):
        keys = [(dimension.find_key(side), side) for dimension in (one, other) for side in Side]
        domains = {condition.sides[side].key(key).domain for key, side in keys}
        is_opposite = one.bounds_above(Side.LEFT) != other.bounds_above(Side.LEFT)
        if is_opposite and len(set(keys)) == len(keys) and len(domains) == 1:
            yield first, second


class Fit(NamedTuple):
    """The parts of a condition that a shape evaluates."""

    equalities: tuple[int, ...]
    dimensions: tuple[int, ...]
    reason: str
    """Which part of the condition made the shape fit; explain prints it."""


@dataclass(frozen=True)
class ProbeCost:
    """The cost of a probe and of a stored tuple, for the cost model and for explain."""

    formula: str
    """The cost of one probe at a unit that stores n tuples, as in "log n + tuples of the bucket". Explain
    prints it."""
    step_s: float = BISECTION_S
    """Seconds for one of the ``Shape.steps`` of a probe."""
    insert_s: float = INSERT_S
    """Seconds to order and lay out one tuple."""
    entry_bytes: int = 0
    """The largest number of directory bytes per tuple."""
    looks_at_all: bool = False
    """Whether each stored tuple is a candidate of each probe. If so, ``Shape.steps`` counts candidates."""


@dataclass(frozen=True)
class LayoutRules:
    """What the engine may assume of the runs of a shape."""

    has_exact_buckets: bool = True
    """Whether all tuples of a bucket have equal keys in ``Access.group``. If they have not, these keys are
    compared for each candidate."""
    orders_ends: bool = False
    """True for intervals: ``Access.ranges`` are the end and the start of stored intervals, in this order, and
    the edge of a bucket is its reach, the length of its longest interval. A probe then enters a bucket where
    an interval of this length just touches it."""
    has_one_bucket: bool = False
    """Whether all rows lie in one bucket. If so, a run that spans many windows is cut into buckets by event
    time (``thetastream.engine.store.run``), and probes that do not know the window visit all of them."""
    uses_measures: bool = False
    """Whether the shape uses the first measure of the condition, ``Search.measured``, or else the measure by
    which partners are ranked, ``Search.ranked``."""
    bucket_shape: "Shape | None" = None
    """The shape with which a hop reads runs of this shape if its condition has the equalities of the index
    but not its ranges. None if such a hop must scan the runs."""


class StoredRows(Protocol):
    """The rows of a run, as ``Shape.match`` reads them."""

    @property
    def payload(self) -> pa.RecordBatch:
        """The stored tuples, in the order that the shape has given them."""

    @property
    def rows(self) -> Int64s:
        """Their keys, of shape (n, columns). Column 0 is the event time."""

    @property
    def edges(self) -> Int64s:
        """The edges of the buckets, as in ``Layout``."""

    @property
    def offsets(self) -> Int64s:
        """The first row of each bucket, as in ``Layout``."""

    @property
    def zoned(self) -> tuple[int, ...]:
        """The columns of ``rows`` that have zones."""

    @property
    def zones(self) -> Int64s:
        """Their zones, as ``thetastream.index.zones`` builds them."""


class MeasuredSearch(NamedTuple):
    """A measure of probes, its left operands, and stored rows that is compared with a constant or with
    thresholds."""

    limit: MeasureLimit | RowLimit
    probes: Any
    """What ``PairMeasure.derive`` returned for the probes."""
    places: Int64s
    """For each probe, its row in ``probes``."""
    stored: Any
    """What ``PairMeasure.derive`` returned for the stored rows."""
    thresholds: Values = NO_VALUES
    """The thresholds of a ``RowLimit``: those of the rows of ``probes`` if its side is the left one, or else
    those of the stored rows."""


class RankedSearch(NamedTuple):
    """A measure of probes and stored rows that ranks partners. Left tuples look for their nearest ones."""

    ranked: RankedPair
    probes: Any
    """What ``PairMeasure.derive`` returned for the probes."""
    places: Int64s
    """For each probe, its row in ``probes``."""
    stored: Any
    """What ``PairMeasure.derive`` returned for the stored rows."""
    same: tuple[tuple[Int64s, Int64s], ...]
    """For each pair of columns whose values must be the same, a number for the value of each row of
    ``probes`` and of each stored row."""
    best: npt.NDArray[np.float32] | None
    """The heaps of the rows of ``probes``, as in ``NearestSearch.best``, if the probes are left tuples."""


class Search(NamedTuple):
    """What n probes look for in one run. Each ``Span`` has one interval per probe."""

    buckets: Span
    """The buckets [low, high) that each probe visits."""
    checked: dict[int, Span]
    """For each column of the key rows that the layout does not evaluate, the interval in which a partner
    lies."""
    suffix: int = -1
    """The column that orders the rows of a bucket; -1 if they have no order."""
    ranges: tuple[Span, ...] = ()
    """The intervals for the columns of ``Access.ranges``. The rows that lie in the last one are next to each
    other if the rows of a bucket are ordered."""
    most: int = HIGHEST
    """The number of partners that are enough for a probe. A shape may return more of them."""
    measured: MeasuredSearch | None = None
    """The measure for shapes that use one."""
    ranked: RankedSearch | None = None
    """The measure that ranks partners, if all partners are known by the intervals of this search."""
    table: SpanTable | None = None
    """A table with the intervals of ``checked``, if there is one. The walk reads it without a copy."""

    @property
    def n_probes(self) -> int:
        """The number of probes."""
        return len(self.buckets.low)

    def tabulate(self) -> SpanTable:
        """Return a table with the intervals of ``checked``.

        A shape may have replaced ``checked`` by intervals of other probes, which ``table`` does not have.
        """
        if self.table is not None and all(
            self.table.spans.get(column) is span for column, span in self.checked.items()
        ):
            return self.table
        low, high = np.empty((2, len(self.checked), self.n_probes), dtype=np.int64)
        for place, span in enumerate(self.checked.values()):
            low[place], high[place] = span
        return SpanTable(self.checked, low, high)


class Pairs(NamedTuple):
    """Some of the pairs that a search has found, as positions of probes and of stored rows."""

    probes: Int64s
    stored: Int64s
    n_candidates: int
    """The number of stored rows that were compared to find these pairs."""
    is_proved: bool = False
    """Whether the first measure of the condition is true for all of these pairs."""


class Shape(ABC):
    """An index shape: it defines the order of the tuples in a run, and which of them a probe compares.

    A shape keeps no data of a run; the layout holds all of it. The shape is pickled into the plan. Therefore
    a subclass must be importable in the workers, or ``cloudpickle`` must pickle it by value, as it does with
    the classes of a notebook, of ``__main__``, and of modules that were passed to
    ``cloudpickle.register_pickle_by_value``. Two shapes are equal if they have the same name.
    """

    name: ClassVar[str]
    """The name of the shape in the setting ``index`` and in explain."""
    strength: ClassVar[int]
    """The rank of the shape. Of all shapes that fit a condition, the planner chooses the one with the
    greatest strength, because it leaves the fewest candidates. The shapes of this package have 0 (scan), 10
    (sorted), 15 (intervals), 20 (grid), 30 (hash), 35 (tiles), 40 (hash_sorted) and 45 (hash_tiles)."""
    needs: ClassVar[str]
    """What a condition must have so that the shape fits, as in "an equality". Error messages print it."""
    cost: ClassVar[ProbeCost]
    """What a probe costs."""
    layout: ClassVar[LayoutRules] = LayoutRules()
    """What the engine may assume of the runs of the shape."""

    @abstractmethod
    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        """Choose the parts of a condition that this shape evaluates; None if it does not fit the condition.

        ``is_asked`` says that the user named the shape. It may then also fit where another shape would be
        better, for example over the window.
        """

    @abstractmethod
    def suffix(self, access: Access) -> int:
        """The column that orders the rows inside a bucket, which is the last of ``access.ranges``; -1 if the
        rows of a bucket have no order."""

    @abstractmethod
    def arrange(self, access: Access, rows: Int64s) -> Layout:
        """Compute the order and the buckets of ``rows``, which have the shape (n, columns)."""

    @abstractmethod
    def buckets(self, edges: Int64s, n_probes: int, group: Int64s | None, spans: tuple[Span, ...]) -> Span:
        """Find the buckets [low, high) that each probe visits.

        ``group`` holds the equality keys of the probes, combined by ``thetastream.core.keys.combine_keys``.
        ``spans`` holds one interval for each column of ``Access.ranges``.
        """

    def steps(self, stored: Floats, n_segments: float) -> Floats:
        """Estimate how many steps one probe takes before it compares candidates, for the cost model.

        The ``stored`` tuples lie in ``n_segments`` runs of equal size. Most shapes bisect each run.
        """
        return np.asarray(n_segments * np.log2(np.maximum(stored / n_segments, 1.0)))

    def match(self, run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs]:
        """Find the stored rows that lie in all intervals of each probe, at most ``capacity`` pairs at a time.

        By default, a compiled loop walks the buckets of each probe. Inside a bucket it bisects by the suffix,
        passes blocks of rows by their zones, and compares the other columns of each row. A shape that
        compares many rows at once, for example by a product of matrices, overrides this method.
        """
        from thetastream.kernels.walk import walk  # loads Numba

        buckets, checked, suffix, ranges, most, *_ = search
        table = search.tabulate()
        slo = shi = entry = reach = _NOTHING
        if suffix >= 0:
            slo, shi = np.ascontiguousarray(ranges[-1].low), np.ascontiguousarray(ranges[-1].high)
        if self.layout.orders_ends:
            entry, reach = np.ascontiguousarray(ranges[0].low), run.edges
        first, last = (np.ascontiguousarray(edge, dtype=np.int64) for edge in buckets)
        zoned = [column for column in checked if column in run.zoned]
        columns, places, zones, checks = (
            np.array([*found], dtype=np.int64)
            for found in (
                checked,
                map([*table.spans].index, checked),
                map(run.zoned.index, zoned),
                map([*table.spans].index, zoned),
            )
        )
        levels = find_levels(len(run.rows))
        cursor = np.array([0, -1, -1, 0, 0], dtype=np.int64)
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
                columns,
                places,
                table.low,
                table.high,
                table.start,
                cursor,
                out_probe,
                out_stored,
                entry,
                reach,
                run.zones,
                levels,
                zones,
                checks,
                most,
            )
            yield Pairs(out_probe[:n], out_stored[:n], int(cursor[3]))
            if n < capacity:
                return

    def __repr__(self) -> str:
        # The text has no address, because it identifies the index of a run in every process.
        return f"<index shape {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class IndexSpec:
    """The index in which the tuples of a side are stored, and the conjuncts that it evaluates.

    ``equalities`` are positions in ``Condition.equalities``. ``dimensions`` are positions in
    ``Condition.dimensions``, where ``TIME`` (-1) stands for the window.

    >>> from thetastream.index.hash import Hash
    >>> IndexSpec(Hash(), (0,))
    IndexSpec(shape=<index shape hash>, equalities=(0,), dimensions=())
    """

    shape: Shape
    equalities: tuple[int, ...] = ()
    dimensions: tuple[int, ...] = ()


def build_one_bucket(n_rows: int) -> tuple[Int64s, Int64s]:
    """Build the edges and offsets of a single bucket that holds all rows."""
    return np.zeros(1, dtype=np.int64), np.array([0, n_rows], dtype=np.int64)


def visit_all_buckets(edges: Int64s, n_probes: int) -> Span:
    """Let every probe visit all buckets."""
    return Span(np.zeros(n_probes, dtype=np.int64), np.full(n_probes, len(edges), dtype=np.int64))


def group_equal_keys(ordered: Int64s) -> tuple[Int64s, Int64s]:
    """Compute the edges and offsets of the groups of equal keys in an ordered column."""
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.append(starts, len(ordered)).astype(np.int64)


def find_equal_buckets(edges: Int64s, keys: Int64s) -> Span:
    """Find the bucket whose edge equals the key of each probe; the span is empty if there is none."""
    from thetastream.kernels.keys import find_equal  # loads Numba

    first, last = np.empty_like(keys), np.empty_like(keys)
    find_equal(edges, keys, first, last)
    return Span(first, last)


def find_touched_buckets(edges: Int64s, ends: Span) -> Span:
    """Find the buckets that the interval of each probe touches, if bucket b has the keys from edge b on.

    An interval that begins exactly at an edge also touches the bucket before, which may end with this key.

    >>> touched = find_touched_buckets(np.array([0, 10, 20]), Span(np.array([10, 11]), np.array([10, 25])))
    >>> [one.tolist() for one in touched]
    [[0, 1], [2, 3]]
    """
    from thetastream.kernels.keys import find_cells  # loads Numba

    low, high = map(np.ascontiguousarray, ends)
    first, last = np.empty_like(low), np.empty_like(high)
    find_cells(edges, low, high, first, last)
    return Span(first, last)
