"""Walk the buckets of a run and emit every stored tuple inside the probe's box.

For each probe p, each bucket b in [first[p], last[p]), and each stored row i of b with
slo[p] <= rows[i, suffix] <= shi[p]: emit (p, i) iff lo[p, j] <= rows[i, columns[j]] <= hi[p, j] for all j.

Every index shape is a case of this walk: scan has one bucket and no suffix, sorted has one bucket with a
suffix, hash has a bucket per key, hash_sorted has a bucket per key with a suffix, grid has equal-depth cells
of one key with the other key as the suffix, and intervals has a bucket per class of lengths with the start as
the suffix. BiStream (section 3.3) calls the checks piggybacked
secondary predicates.
"""

import numpy as np

from thetastream.kernels.jit import Int64s, jit

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@jit
def lower_bound(rows: Int64s, column: int, start: int, end: int, key: int) -> int:
    """Find the first i in [start, end) with rows[i, column] >= key; return ``end`` if there is none.

    The loop has no branch, because a branch predictor could not predict which half is taken.
    """
    n = end - start
    while n > 0:
        half = (n + 1) >> 1
        start += half * (rows[start + half - 1, column] < key)
        n -= half
    return start


@jit
def walk(
    rows: Int64s,
    offsets: Int64s,
    suffix: int,
    first: Int64s,
    last: Int64s,
    slo: Int64s,
    shi: Int64s,
    columns: Int64s,
    lo: Int64s,
    hi: Int64s,
    cursor: Int64s,
    out_probe: Int64s,
    out_stored: Int64s,
    entry: Int64s,
    reach: Int64s,
) -> int:
    """Fill the output buffers with matching pairs, starting at ``cursor``; return the number of pairs.

    ``cursor`` is (probe, bucket, row, candidates seen). Row -1 means that the walk has not entered the
    bucket. If fewer pairs are returned than the buffers hold, all probes are done; otherwise call the
    function again.

    If buckets have a ``reach``, the walk of a bucket begins at entry[p] - reach[b], or at slo[p] if that is
    greater. The highest reach has no bound.
    """
    n = 0
    p, b, i = cursor[0], cursor[1], cursor[2]
    seen = 0
    while p < len(first):
        if b < 0:
            b = first[p]
        while b < last[p]:
            end = offsets[b + 1]
            if i < 0:
                i = offsets[b]
                if suffix >= 0:
                    low = slo[p]
                    # The difference must not leave int64: compiled code does not wrap.
                    if len(reach) > 0 and reach[b] < HIGHEST and entry[p] >= LOWEST + reach[b]:
                        low = max(low, entry[p] - reach[b])
                    i = lower_bound(rows, suffix, i, end, low)
            while i < end:
                if suffix >= 0 and rows[i, suffix] > shi[p]:
                    break
                if n == len(out_probe):
                    cursor[0], cursor[1], cursor[2] = p, b, i
                    cursor[3] += seen
                    return n
                seen += 1
                inside = True
                for j in range(len(columns)):
                    value = rows[i, columns[j]]
                    if value < lo[p, j] or value > hi[p, j]:
                        inside = False
                        break
                if inside:
                    out_probe[n] = p
                    out_stored[n] = i
                    n += 1
                i += 1
            i = -1
            b += 1
        b = -1
        p += 1
    cursor[0], cursor[1], cursor[2] = p, -1, -1
    cursor[3] += seen
    return n
