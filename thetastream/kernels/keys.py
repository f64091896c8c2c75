"""Kernels over encoded keys: looking keys up, sorting rows inside buckets, and counting equal keys.

find_equal      looks many keys up in ascending edges
find_cells      looks up which cells intervals touch, whose first keys ascend
bisect          looks a key up in an ascending part of the values, for each probe
order_inside    orders rows inside the buckets that a first sort has made
count_equal     counts equal keys in a hash table, which ``refill`` moves into a larger one
"""

import numpy as np

from thetastream.kernels.compiling import Int64s, jit


@jit
def find_equal(edges: Int64s, keys: Int64s, first: Int64s, last: Int64s) -> None:
    """Write the position of ``keys[p]`` in ``edges`` as ``[first[p], last[p])``, which is empty if it is
    absent.

    The search gallops from the position of the previous key. Therefore ascending keys cost O(log gap) each,
    and other keys cost O(log edges).
    """
    n = len(edges)
    at = 0
    for p in range(len(keys)):
        key = keys[p]
        if p > 0 and key < keys[p - 1]:
            at = 0
        # 1. Widen until edges[end] >= key.
        end = at
        step = 1
        while end < n and edges[end] < key:
            at = end + 1
            end += step
            step <<= 1
        end = min(end, n)
        # 2. Bisect.
        while at < end:
            middle = (at + end) >> 1
            if edges[middle] < key:
                at = middle + 1
            else:
                end = middle
        first[p] = at
        last[p] = at + (at < n and edges[at] == key)


@jit
def find_cells(edges: Int64s, low: Int64s, high: Int64s, first: Int64s, last: Int64s) -> None:
    """Write the cells [first[p], last[p]) that the interval [low[p], high[p]] touches.

    Cell c begins with the key ``edges[c]``, and the cell before it may end with the same key. The search
    begins at the cells of the probe before. Therefore it is fast if the ends of the intervals ascend.
    """
    n = len(edges)
    at, behind = 0, 0
    for p in range(len(low)):
        key = low[p]
        at += (at + 1 < n and edges[at + 1] < key) - (at > 0 and edges[at] >= key)
        if (at + 1 < n and edges[at + 1] < key) or (at > 0 and edges[at] >= key):
            at = max(bound(edges, 0, n, key, False) - 1, 0)
        first[p] = at
        key = high[p]
        behind += (behind < n and edges[behind] <= key) - (behind > 0 and edges[behind - 1] > key)
        if (behind < n and edges[behind] <= key) or (behind > 0 and edges[behind - 1] > key):
            behind = bound(edges, 0, n, key, True)
        last[p] = behind


@jit
def bound(values: Int64s, start: int, end: int, key: int, is_after: bool) -> int:
    """Find the first i in [start, end) with values[i] >= key, or with values[i] > key if ``is_after``.

    It is ``end`` if there is none. The values ascend there. The loop has no branch, as in ``lower_bound``.
    """
    n = end - start
    while n > 0:
        half = (n + 1) >> 1
        value = values[start + half - 1]
        start += half * ((value < key) | (is_after & (value == key)))
        n -= half
    return start


def order_inside(by_bucket: Int64s, offsets: Int64s, by_minor: Int64s) -> Int64s:
    """Order row numbers by bucket, and as in ``by_minor`` inside a bucket.

    Two unstable sorts and one pass are 2.5 times as fast as ``np.lexsort``, which sorts stably twice.

    Parameters
    ----------
    by_bucket : int64, shape (n,)
        The row numbers, grouped by bucket.
    offsets : int64, shape (buckets + 1,)
        Bucket b is ``by_bucket[offsets[b]:offsets[b + 1]]``.
    by_minor : int64, shape (n,)
        All row numbers, in the order that they have inside a bucket.

    Examples
    --------
    >>> order_inside(np.array([3, 0, 2, 1]), np.array([0, 2, 4]), np.array([1, 2, 0, 3]))
    array([0, 3, 1, 2])
    """
    bucket_of = np.empty_like(by_bucket)
    bucket_of[by_bucket] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    out = np.empty_like(by_bucket)
    _place(by_minor, bucket_of, offsets[:-1].copy(), out)
    return out


@jit
def _place(order: Int64s, bucket_of: Int64s, cursor: Int64s, out: Int64s) -> None:
    for i in range(len(order)):
        row = order[i]
        bucket = bucket_of[row]
        out[cursor[bucket]] = row
        cursor[bucket] += 1


@jit
def bisect(values: Int64s, first: Int64s, last: Int64s, keys: Int64s, is_after: bool, found: Int64s) -> None:
    """Write for each probe p what ``bound`` finds in [first[p], last[p]); ``first[p]`` if that is empty."""
    for p in range(len(keys)):
        found[p] = bound(values, first[p], last[p], keys[p], is_after)


@jit
def count_equal(keys: Int64s, known: Int64s, counts: Int64s, before: Int64s) -> int:
    """Write how many equal keys came before each key, and count the keys; return the number of new keys.

    ``known`` and ``counts`` are a hash table with open addressing. Their length is a power of two, and more
    than the keys that they get. ``counts`` is 0 where the table is empty. Keys must be well mixed, because
    their low bits choose the place.
    """
    mask = len(known) - 1
    n_new = 0
    for i in range(len(keys)):
        key = keys[i]
        at = key & mask
        while counts[at] != 0 and known[at] != key:
            at = (at + 1) & mask
        if counts[at] == 0:
            known[at] = key
            n_new += 1
        before[i] = counts[at]
        counts[at] += 1
    return n_new


@jit
def refill(known: Int64s, counts: Int64s, to_known: Int64s, to_counts: Int64s) -> None:
    """Move the keys of a table into a larger one, which is empty."""
    mask = len(to_known) - 1
    for place in range(len(known)):
        if counts[place] != 0:
            at = known[place] & mask
            while to_counts[at] != 0:
                at = (at + 1) & mask
            to_known[at] = known[place]
            to_counts[at] = counts[place]
