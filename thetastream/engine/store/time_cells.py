"""Time cells: a run that spans many windows is cut by event time, so that a probe visits a few of its rows.

A segment of sparse history spans much more event time than the window. Inside it, the window selects better
than most conditions. If the shape of the index has one bucket, the rows are therefore cut into cells of equal
depth by event time, and the shape orders the rows of each cell. A probe visits the cells that its window
touches. A run of dense history is one cell.
"""

import numpy as np

from thetastream.core.keys import Int64s
from thetastream.index.base import Span

MIN_CELL = 64
"""The smallest cell. Smaller cells would cost more in bisections than they save in comparisons."""
MIN_CELLS = 4
"""With fewer cells, the cells save less than the search for them costs."""
SAMPLES = 64
"""The number of windows whose tuples are counted to find the depth of a cell."""


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
    order = np.argsort(times, kind="stable")
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


def visit_cells(edges: Int64s, times: Span) -> Span:
    """Find the cells [low, high) that the windows of probes touch.

    ``edges`` has the first time of each cell. A window that begins exactly at an edge also visits the cell
    before, because this cell may end with the same time.
    """
    low = np.maximum(np.searchsorted(edges, times.low, side="left") - 1, 0)
    return Span(low, np.searchsorted(edges, times.high, side="right"))
