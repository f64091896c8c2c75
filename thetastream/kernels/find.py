"""Look up many keys in ascending edges. The search is fastest when the keys ascend too."""

from thetastream.kernels.jit import Int64s, jit


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
