"""Cuts the archive periods of an epoch's tuples into spans, each of which becomes one segment.

A probe searches every segment whose times it can reach, and every segment costs a few calls to Spark's state
store. So an epoch should bring few segments, whatever event time its tuples span. On the other hand, a
segment expires as a whole, with its latest tuple: the longer the time it spans, the longer its first tuples
are kept.
"""

import numpy as np

from thetastream.core.keys import HIGHEST, Int64s

SHARED_ROWS = 1 << 16
SHARED_PERIODS = 5
"""The largest number of tuples and of archive periods for which neighbouring periods share one segment."""
SPARSE_ROWS = 1 << 10
"""A segment with fewer tuples takes in the next period, however long the gap before it is. The tuples have
arrived in one epoch, so keeping them longer costs less than the segments would."""
SEGMENTS_PER_EPOCH = 16
"""A segment that has less than this share of an epoch's tuples takes in the next period too."""
COUNTED = 4
"""Periods are counted in an array if it has at most so many places for each tuple. Others are sorted."""
LARGE_GAPS = 8
"""No segment spans one of the largest gaps, if these are longer than ``SHARED_PERIODS``. So a tuple with a
wrong time, far ahead of all others, keeps no other tuple alive."""


def cut_periods(periods: Int64s) -> list[tuple[int, int]]:
    """Cut the archive periods of an epoch into inclusive spans, each of which becomes one segment.

    There are at most ``SEGMENTS_PER_EPOCH + LARGE_GAPS + 1`` spans, apart from those with ``SHARED_ROWS``
    tuples.

    >>> cut_periods(np.array([3, 3, 4, 7, 90]))
    [(3, 7), (90, 90)]
    >>> len(cut_periods(np.arange(0, 1_000_000, 10)))
    24
    """
    numbers, counts = _count_periods(periods)
    before = np.concatenate([[0], np.cumsum(counts)])
    sparse = max(SPARSE_ROWS, -(-len(periods) // SEGMENTS_PER_EPOCH))
    found = []
    start = 0
    for end in _end_stretches(numbers):
        while start < end:
            # Find the first period behind the span: the span must not be sparse, and it should keep to the
            # limits of shared periods.
            behind_sparse = np.searchsorted(before, before[start] + sparse)
            behind_rows = np.searchsorted(before, before[start] + SHARED_ROWS, "right") - 1
            behind_time = np.searchsorted(numbers, min(int(numbers[start]) + SHARED_PERIODS, HIGHEST))
            behind = min(max(behind_sparse, min(behind_rows, behind_time), start + 1), end)
            found.append((int(numbers[start]), int(numbers[behind - 1])))
            start = behind
    return found


def _count_periods(periods: Int64s) -> tuple[Int64s, Int64s]:
    """Return the periods that have tuples in ascending order, and how many each of them has."""
    first, last = int(periods.min()), int(periods.max())
    if last - first > COUNTED * len(periods):
        return np.unique(periods, return_counts=True)
    counts = np.bincount(periods - first)
    numbers = np.flatnonzero(counts)
    return numbers + first, counts[numbers]


def _end_stretches(numbers: Int64s) -> list[int]:
    """Return the positions behind the stretches that the largest gaps divide."""
    gaps = np.diff(numbers.astype(np.uint64))  # The difference of two int64 may exceed int64.
    largest = np.argsort(gaps, kind="stable")[-LARGE_GAPS:]
    return [*sorted((largest[gaps[largest] > SHARED_PERIODS] + 1).tolist()), len(numbers)]
