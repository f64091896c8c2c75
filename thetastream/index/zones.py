"""Zones of a run: the least and the greatest value of some key columns in each block of rows.

    rows       [3 9 4 1 | 7 7 8 6 | 2 5]      blocks of 4 rows, one column
    zones      (1, 9)  (6, 8)  (2, 5)         one zone for each block
               (1, 9)                         one zone for each 4 zones, and so on up to one zone

A walk (``thetastream.kernels.walk``) passes the blocks whose zones lie outside the interval of a probe.
"""

from collections.abc import Sequence

import numpy as np

from thetastream.core.keys import Int64s

BLOCK = 8
"""The number of rows of a block, and of zones under a zone of the next level. The kernel has the same."""


def build_zones(rows: Int64s, columns: Sequence[int]) -> Int64s:
    """Compute the zones of ``rows``, level after level, from blocks of rows up to one zone.

    Parameters
    ----------
    rows : int64, shape (n, 1 + keys)
        The key rows, in the order of the run.
    columns : sequence of int
        The columns that have zones.

    Returns
    -------
    int64, shape (zones, 2 * columns)
        The least and the greatest value of each column. It has no rows without columns or without key rows.

    Examples
    --------
    >>> build_zones(np.arange(18).reshape(9, 2), [1]).tolist()
    [[1, 15], [17, 17], [1, 17]]
    """
    n = len(rows)
    if not n or not columns:
        return np.zeros((0, 2 * len(columns)), dtype=np.int64)
    least = greatest = np.ascontiguousarray(rows[:, list(columns)])
    levels: list[Int64s] = []
    while not levels or len(least) > 1:
        starts = np.arange(0, len(least), BLOCK)
        least, greatest = np.minimum.reduceat(least, starts), np.maximum.reduceat(greatest, starts)
        levels.append(np.stack([least, greatest], axis=2).reshape(len(starts), -1))
    return np.concatenate(levels)


def find_levels(n_rows: int) -> Int64s:
    """Find the first zone of each level of the zones of ``n_rows`` rows.

    >>> find_levels(1000).tolist()
    [0, 125, 141, 143]
    """
    starts, n = [0], -(-n_rows // BLOCK)
    while n > 1:
        starts.append(starts[-1] + n)
        n = -(-n // BLOCK)
    return np.array(starts, dtype=np.int64)
