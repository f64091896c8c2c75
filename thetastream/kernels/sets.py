"""Kernels that compare sets by the elements that they share."""

import numpy as np

from thetastream.kernels.compiling import Floats, Int64s, Singles, jit


@jit
def count_common(x: Int64s, x_starts: Int64s, y: Int64s, y_starts: Int64s, common: Int64s) -> None:
    """Write how many elements each pair of sets shares. The elements of a set are ascending."""
    for p in range(len(common)):
        common[p] = count_shared(x[x_starts[p] : x_starts[p + 1]], y[y_starts[p] : y_starts[p + 1]])


@jit
def count_shared(x: Int64s, y: Int64s) -> int:
    """Count the elements that two ascending sets share."""
    n = i = j = 0
    while i < len(x) and j < len(y):
        if x[i] == y[j]:
            n += 1
            i += 1
            j += 1
        elif x[i] < y[j]:
            i += 1
        else:
            j += 1
    return n


@jit
def find_whole(kind: int, a: int, b: int, length: int, other: int, shared: int) -> float:
    """Return by what a ratio of sets divides the number of elements that they share.

    ``a`` and ``b`` are the sizes of the sets, and ``length`` and ``other`` those of the arrays. The kinds are
    those of ``thetastream.index.measures.set_ratios``.
    """
    whole = 1.0
    if kind == 0:
        whole = float(a + b - shared)
    elif kind == 1:
        whole = float(length + other - shared)
    elif kind == 2:
        whole = float(length)
    elif kind == 3:
        whole = float(other)
    elif kind == 4:
        whole = float(min(length, other))
    elif kind == 5:
        whole = (length + other) / 2.0
    return whole


@jit
def find_wholes(
    kind: int, a: Int64s, b: Int64s, lengths: Int64s, others: Int64s, shared: Int64s, wholes: Floats
) -> None:
    """Write ``find_whole`` of each pair of sets."""
    for p in range(len(wholes)):
        wholes[p] = find_whole(kind, a[p], b[p], lengths[p], others[p], shared[p])


@jit
def select_sets(
    kind: int,
    tokens: Int64s,
    length: int,
    prefix: Int64s,
    ends: Int64s,
    counts: Int64s,
    rows: Int64s,
    places: Int64s,
    stored: Int64s,
    starts: Int64s,
    lengths: Int64s,
    firsts: Int64s,
    least: float,
    columns: Int64s,
) -> Int64s:
    """Find the sets that share an element with the set ``tokens`` and whose ratio with it is at least
    ``least``. A set whose number in ``columns`` is -1 is left out.

    ``prefix`` has the numbers of its first elements in the inverted index, whose element e is in the sets
    ``rows[ends[e] - counts[e]:ends[e]]``, and has its place in each of them. It counts if it is one of the
    first ``firsts[row]`` elements. ``stored`` and ``starts`` have the elements of these sets.
    """
    n, most, size = 0, 0, len(tokens)
    for element in prefix:
        most += counts[element]
    found = np.empty(most, dtype=np.int64)
    for element in prefix:
        for entry in range(ends[element] - counts[element], ends[element]):
            row = rows[entry]
            other = starts[row + 1] - starts[row]
            # The more the sets share, the greater is the ratio.
            shared = min(size, other)
            whole = find_whole(kind, size, other, length, lengths[row], shared)
            if places[entry] < firsts[row] and columns[row] >= 0 and shared >= least * whole:
                found[n] = row
                n += 1
    kept = 0
    for row in np.unique(found[:n]):
        shared = count_shared(tokens, stored[starts[row] : starts[row + 1]])
        other = starts[row + 1] - starts[row]
        if shared > 0 and shared >= least * find_whole(kind, size, other, length, lengths[row], shared):
            found[kept] = row
            kept += 1
    return found[:kept]


@jit
def score_sets(
    kind: int,
    size: int,
    length: int,
    elements: Int64s,
    ends: Int64s,
    counts: Int64s,
    rows: Int64s,
    columns: Int64s,
    sizes: Int64s,
    lengths: Int64s,
    scores: Singles,
) -> None:
    """Write the ratio of a set with each of the others, whose place in ``scores`` is ``columns[row]``.

    ``scores`` has only zeros before. The inverted index is that of ``select_sets``.
    """
    for element in elements:
        for entry in range(ends[element] - counts[element], ends[element]):
            if columns[rows[entry]] >= 0:
                scores[columns[rows[entry]]] += np.float32(1)
    for c in range(len(scores)):
        shared = int(scores[c])
        if shared:
            whole = find_whole(kind, size, sizes[c], length, lengths[c], shared)
            scores[c] = np.float32(shared / whole)
