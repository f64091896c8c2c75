"""A run: an immutable, ordered set of stored tuples of one side, with the arrays of its index.

*Time cells.* A run that spans many windows is cut by event time, so that a probe visits a few of its rows. A
segment of sparse history spans much more event time than the window. Inside it, the window selects better
than most conditions. If the shape of the index has one bucket, the rows are therefore cut into cells of equal
depth by event time, and the shape orders the rows of each cell. A probe visits the cells that its window
touches. A run of dense history is one cell.

*Zones.* Columns that the index does not order have zones. So a probe passes rows that lie outside of its box
in blocks (``thetastream.index.zones``). One range that is as long as all others together, or two inequalities
that are rarely true together, cost a probe its partners and a few blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import RowFacts
from thetastream.core.condition import TIME, Domain
from thetastream.core.keys import HIGHEST, LOWEST, Int64s, decode_floats, shift, sort_keys
from thetastream.engine.store.box import Box, IndexPlan, Width, encode_key_rows, locate_key_column
from thetastream.index.base import (
    Layout,
    MeasuredSearch,
    Pairs,
    RankedSearch,
    Search,
    Span,
    find_touched_buckets,
)
from thetastream.index.zones import build_zones

TIME_COLUMN = locate_key_column(TIME)
_NO_ROWS = np.zeros((0, 1), dtype=np.int64)
MIN_CELL = 64
"""The smallest cell. Smaller cells would cost more in bisections than they save in comparisons."""
MIN_CELLS = 4
"""With fewer cells, the cells save less than the search for them costs."""
SAMPLES = 64
"""The number of windows whose tuples are counted to find the depth of a cell."""


@dataclass(frozen=True)
class Run:
    """The payload and the index of a set of stored tuples.

    ``rows`` is int64 of shape (n, 1 + keys). Row i holds the keys of row i of ``payload``.
    """

    payload: pa.RecordBatch
    rows: Int64s
    edges: Int64s
    offsets: Int64s
    widths: tuple[float, ...]
    """For each range column, the width of the widest stored interval, in the unit of its domain; 0 if no
    intervals are stored."""
    facts: RowFacts
    """What is computed from the payload when it is first needed, such as the bytes of each row."""
    is_cut_by_time: bool = False
    """Whether the buckets are time cells. If so, ``edges`` has the first event time of each cell."""
    zoned: tuple[int, ...] = ()
    """The columns of ``rows`` that have zones."""
    zones: Int64s = field(default_factory=lambda: build_zones(_NO_ROWS, ()))
    """The zones, of shape (zones, 2 * columns)."""

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the run occupies, which are part of the memory load volume of the unit.

        They grow when a search first needs arrays of ``facts``.
        """
        arrays = (self.rows, self.edges, self.offsets, self.zones)
        return int(self.payload.nbytes) + sum(array.nbytes for array in arrays) + self.facts.nbytes

    def find_bounds(self, suffix: int) -> list[tuple[int, int, int]]:
        """Find the least and the greatest value of some columns of ``rows``, without reading all rows.

        Parameters
        ----------
        suffix : int
            The column by which the rows of a bucket are ordered; -1 if there is none.

        Returns
        -------
        list of (column, least, greatest)
            For columns with zones, and for the suffix if the run has one bucket.
        """
        if not self.n_rows:
            return []
        bounds = [
            (column, int(self.zones[-1, 2 * n]), int(self.zones[-1, 2 * n + 1]))
            for n, column in enumerate(self.zoned)
        ]
        if suffix >= 0 and len(self.offsets) == 2:
            bounds.append((suffix, int(self.rows[0, suffix]), int(self.rows[-1, suffix])))
        return bounds


def build(
    plan: IndexPlan, payload: pa.RecordBatch, rows: Int64s | None = None, places: Int64s | None = None
) -> Run:
    """Order tuples as the index of the plan requires, and lay out its buckets.

    ``rows`` are their key rows, and ``places`` their positions in ``payload``; by default they are all of it.
    """
    if rows is None:
        rows = encode_key_rows(plan.stored, plan.condition, payload)
    cells = _arrange_cells(plan, rows)
    layout = plan.index.shape.arrange(plan.access, rows) if cells is None else cells
    if layout.order is not None:
        # ``rows[order]`` copies value by value, which takes twenty times as long.
        rows = rows.take(layout.order, axis=0)
        places = layout.order if places is None else places[layout.order]
    if places is not None:
        payload = payload.take(places)
    widths = tuple(_find_widest(rows, width) for width in plan.widths)
    rows = np.ascontiguousarray(rows)
    return Run(
        payload,
        rows,
        layout.edges,
        layout.offsets,
        widths,
        RowFacts(payload),
        cells is not None,
        plan.zoned,
        build_zones(rows, plan.zoned),
    )


def _arrange_cells(plan: IndexPlan, rows: Int64s) -> Layout | None:
    """Arrange rows in time cells, and order the rows of each cell as the shape does.

    Return None if the shape has several buckets, if there is no window, or if one cell is enough.
    """
    shape, window_us = plan.index.shape, plan.window_us
    if not shape.layout.has_one_bucket or window_us is None:
        return None
    cells = cut_by_time(rows[:, TIME_COLUMN], window_us)
    if cells is None:
        return None
    order, offsets = cells
    edges = rows[order[offsets[:-1]], TIME_COLUMN]
    suffix = shape.suffix(plan.access)
    if suffix >= 0:
        from thetastream.kernels.keys import order_inside  # loads Numba

        order = order_inside(order, offsets, sort_keys(rows[:, suffix]))
    return Layout(order, edges, offsets)


def _find_widest(rows: Int64s, width: Width | None) -> float:
    if width is None or not len(rows):
        return 0
    lower, upper = rows[:, width.lower], rows[:, width.upper]
    if width.domain in (Domain.FLOAT, Domain.WIDE_DECIMAL):
        with np.errstate(invalid="ignore", over="ignore"):
            widest = float(np.max(decode_floats(upper) - decode_floats(lower)))
        # The width is rounded up, because a smaller width would miss intervals that just reach the probe.
        return float(np.nextafter(widest, np.inf)) if np.isfinite(widest) else np.inf
    widest_int = int(np.max(_subtract_saturating(upper, lower)))
    return np.inf if widest_int == HIGHEST else max(widest_int, 0)


def _subtract_saturating(a: Int64s, b: Int64s) -> Int64s:
    difference = a - b
    overflowed = ((a ^ b) & (a ^ difference)) < 0
    return np.where(overflowed, np.where(a < 0, np.int64(LOWEST), np.int64(HIGHEST)), difference)


def search(
    plan: IndexPlan,
    run: Run,
    box: Box,
    skip: frozenset[int],
    capacity: int,
    most: int = HIGHEST,
    measured: MeasuredSearch | None = None,
    ranked: RankedSearch | None = None,
) -> Iterator[Pairs]:
    """Find the stored rows inside the boxes of probes, at most ``capacity`` pairs at a time.

    ``skip`` names the columns that need no check. Each probe is done when it has ``most`` partners.
    ``measured`` and ``ranked`` are measures that the shape uses.
    """
    aimed = _aim(plan, run, box, skip)._replace(most=most, measured=measured, ranked=ranked)
    return plan.index.shape.match(run, aimed, capacity)


def _aim(plan: IndexPlan, run: Run, box: Box, skip: frozenset[int]) -> Search:
    """Find the buckets that each probe visits, and the intervals in which its partners lie."""
    shape = plan.index.shape
    # 1. Compute the intervals on the indexed columns, and extend them where intervals are stored.
    ranges: tuple[Span, ...] = ()
    # The plan has no ranges if it scans a run of another index, or uses only the buckets of that index.
    for column, width, widest in zip(plan.access.ranges, plan.widths, run.widths, strict=False):
        span = box.spans[column]
        if width is not None:
            reach, _ = shift(box.spans[width.upper].low, -widest, width.domain, -1)
            span = Span(np.maximum(span.low, reach), span.high)
        ranges += (span,)
    # 2. Find the buckets.
    if run.is_cut_by_time and TIME_COLUMN in box.spans:
        buckets = find_touched_buckets(run.edges, box.spans[TIME_COLUMN])
    else:
        buckets = shape.buckets(run.edges, box.n_probes, box.group, ranges)
    # 3. List the columns that the layout does not evaluate.
    suffix = shape.suffix(plan.access)
    answered = set(skip) if suffix < 0 else {*skip, suffix}
    is_grouped = len(plan.access.group) == 1 and shape.layout.has_exact_buckets
    if is_grouped and box.shared.isdisjoint(plan.access.group):
        answered.update(plan.access.group)
    checked = {column: span for column, span in box.spans.items() if column not in answered}
    return Search(buckets, checked, suffix, ranges, table=box.table)


def cut_by_time(times: Int64s, window_us: float) -> tuple[Int64s, Int64s] | None:
    """Return the rows in order of time, and where each cell begins and ends; None if one cell is enough.

    A cell has as many rows as a window has in the median. So a single row with a wrong time, far from all
    others, does not change the cells.

    Parameters
    ----------
    times : int64, shape (n,)
        The event time of each row, or its number if the window counts tuples.
    window_us : float
        The length of the window in the unit of ``times``, microseconds or tuples.

    Returns
    -------
    tuple of int64 arrays
        The rows, of shape (n,), and the offsets of the cells, of shape (cells + 1,). Cell c has the rows from
        ``offsets[c]`` to ``offsets[c + 1]``.

    Examples
    --------
    >>> order, offsets = cut_by_time(np.arange(1000)[::-1] * 60, 30)
    >>> order[:2].tolist(), offsets[:3].tolist(), len(offsets) - 1
    ([999, 998], [0, 64, 128], 16)
    >>> cut_by_time(np.arange(1000), 600) is None
    True
    """
    n = len(times)
    if n < MIN_CELLS * MIN_CELL or float(times.max()) - float(times.min()) <= MIN_CELLS * window_us:
        return None
    order = sort_keys(times, is_stable=True)
    ordered = times[order]
    # 1. Count the rows of windows that begin at evenly spaced rows.
    starts = np.arange(0, n, -(-n // SAMPLES))
    # A sum of int64 could wrap around. A sum in floating point does not.
    ends = np.searchsorted(ordered.astype(np.float64), ordered[starts] + float(window_us), side="right")
    # 2. Cut cells of the median depth.
    depth = max(MIN_CELL, int(np.median(ends - starts)))
    if n < MIN_CELLS * depth:
        return None
    return order, np.append(np.arange(0, n, depth, dtype=np.int64), n)
