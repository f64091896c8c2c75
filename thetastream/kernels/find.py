"""Look up many keys in ascending edges; fastest when the keys ascend too."""

import numpy as np
import numpy.typing as npt

from thetastream.kernels.jit import jit

Int64s = npt.NDArray[np.int64]


@jit
def find_equal(edges: Int64s, keys: Int64s, first: Int64s, last: Int64s) -> None:
    """``[first[p], last[p])`` is the position of ``keys[p]`` in ``edges``, or empty.

    Gallops from where the key before was found: ascending keys cost O(log of the gap) each, any
    others O(log edges).
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
