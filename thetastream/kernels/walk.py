"""The walk of all indexes: it emits each stored tuple inside the box of a probe.

Every index shape is a case of ``walk``: scan has one bucket and no suffix, sorted has one bucket with a
suffix, hash has a bucket per key, hash_sorted has a bucket per key with a suffix, grid has equal-depth cells
of one key with the other key as the suffix, and intervals has a bucket per class of lengths with the start as
the suffix. BiStream (section 3.3) calls the checks piggybacked secondary predicates.

*Zones.* Each block of ``BLOCK`` rows may have a zone: the least and the greatest value of some checked
columns. A zone outside the interval of a probe excludes its block. There are also zones of ``BLOCK`` zones,
and so on up to one zone. So a walk passes rows that another conjunct excludes in logarithmic time, as an
augmented interval tree does (cgranges: Li and Rong, Bioinformatics 2021).
"""

import numpy as np

from thetastream.kernels.compiling import Int64s, jit

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
BLOCK_BITS = 3
BLOCK = 1 << BLOCK_BITS
"""The number of rows of a block, and of zones of a zone."""
FINGERS = 16
"""The number of buckets of which a walk remembers where the last probe entered, a power of two."""
LONGEST_STEP = 8
"""The longest step of the search from there, in rows."""


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
    places: Int64s,
    lo: Int64s,
    hi: Int64s,
    start: int,
    cursor: Int64s,
    out_probe: Int64s,
    out_stored: Int64s,
    entry: Int64s,
    reach: Int64s,
    zones: Int64s,
    levels: Int64s,
    zoned: Int64s,
    checks: Int64s,
    most: int,
) -> int:
    """Walk the buckets of a run, and emit every stored tuple inside the box of a probe.

    For each probe p, each bucket b in [first[p], last[p]), and each stored row i of b with
    slo[p] <= rows[i, suffix] <= shi[p]: emit (p, i) iff every column columns[j] of row i lies in the interval
    [lo[places[j], start + p], hi[places[j], start + p]]. The pairs fill the output buffers, and their number
    is returned.

    ``cursor`` is (probe, bucket, row, candidates seen, pairs of the probe). Row -1 means that the walk has
    not entered the bucket. A probe with ``most`` pairs is done. If fewer pairs are returned than the buffers
    hold, all probes are done; otherwise call the function again.

    If buckets have a ``reach``, the walk of a bucket begins at entry[p] - reach[b], or at slo[p] if that is
    greater. The highest reach has no bound. ``is_excluded`` describes ``zoned`` and ``checks``, which are
    empty if no check has a zone.
    """
    n = 0
    p, b, i = cursor[0], cursor[1], cursor[2]
    found = cursor[4]
    seen = 0
    has_zones = len(zoned) > 0
    # Some buckets, the lower end of the last probe that entered each, and the row where it began.
    entered = np.full(FINGERS, -1, np.int64)
    sought, found_at = np.empty(FINGERS, np.int64), np.empty(FINGERS, np.int64)
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
                    finger = b & (FINGERS - 1)
                    if entered[finger] == b and sought[finger] <= low:
                        i = step_to(rows, suffix, found_at[finger], end, low)
                    else:
                        i = lower_bound(rows, suffix, i, end, low)
                    entered[finger], sought[finger], found_at[finger] = b, low, i
            while i < end:
                if has_zones and i & (BLOCK - 1) == 0:
                    i = pass_blocks(zones, levels, i, end, zoned, checks, lo, hi, start + p)
                    if i >= end:
                        break
                if suffix >= 0 and rows[i, suffix] > shi[p]:
                    break
                if n == len(out_probe):
                    cursor[0], cursor[1], cursor[2], cursor[4] = p, b, i, found
                    cursor[3] += seen
                    return n
                seen += 1
                inside = True
                for j in range(len(columns)):
                    value, place = rows[i, columns[j]], places[j]
                    if value < lo[place, start + p] or value > hi[place, start + p]:
                        inside = False
                        break
                if inside:
                    out_probe[n] = p
                    out_stored[n] = i
                    n += 1
                    found += 1
                    if found == most:
                        b = last[p]
                        break
                i += 1
            i = -1
            b += 1
        b = -1
        p += 1
        found = 0
    cursor[0], cursor[1], cursor[2], cursor[4] = p, -1, -1, 0
    cursor[3] += seen
    return n


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
def step_to(rows: Int64s, column: int, start: int, end: int, key: int) -> int:
    """Find what ``lower_bound`` finds, by longer and longer steps, because the row is probably near."""
    step = 1
    while step <= LONGEST_STEP:
        at = start + step - 1
        if at >= end or rows[at, column] >= key:
            return lower_bound(rows, column, start, min(at, end), key)
        start = at + 1
        step <<= 1
    return lower_bound(rows, column, start, end, key)


@jit
def pass_blocks(
    zones: Int64s,
    levels: Int64s,
    i: int,
    end: int,
    zoned: Int64s,
    checks: Int64s,
    lo: Int64s,
    hi: Int64s,
    p: int,
) -> int:
    """Find the first block at or behind row ``i`` that is not excluded; return its first row, or ``end`` or
    more.

    Row ``i`` must begin a block. ``levels[l]`` is the first zone of level l, whose zones have
    ``BLOCK ** (l + 1)`` rows.
    """
    while i < end and is_excluded(zones, i >> BLOCK_BITS, zoned, checks, lo, hi, p):
        level, bits = 0, BLOCK_BITS
        while level + 1 < len(levels):
            wider = bits + BLOCK_BITS
            if i & ((1 << wider) - 1):
                break
            if not is_excluded(zones, levels[level + 1] + (i >> wider), zoned, checks, lo, hi, p):
                break
            level, bits = level + 1, wider
        i += 1 << bits
    return i


@jit
def is_excluded(
    zones: Int64s, zone: int, zoned: Int64s, checks: Int64s, lo: Int64s, hi: Int64s, p: int
) -> bool:
    """Whether no row of a zone lies in the intervals of column ``p`` of ``lo`` and ``hi``.

    Columns ``2 * zoned[z]`` and ``2 * zoned[z] + 1`` of ``zones`` have the least and the greatest value of
    the column whose intervals are row ``checks[z]`` of ``lo`` and ``hi``.
    """
    for z in range(len(zoned)):
        least = 2 * zoned[z]
        j = checks[z]
        if zones[zone, least] > hi[j, p] or zones[zone, least + 1] < lo[j, p]:
            return True
    return False
