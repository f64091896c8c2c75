"""The Numba kernels of indexes and routers. They take and return plain arrays.

    find_equal      looks many keys up in ascending edges
    bisect          looks a key up in an ascending part of the values, for each probe
    order_inside    orders rows inside the buckets that a first sort has made
    walk            emits each stored tuple inside the box of a probe
    count_equal     counts equal keys in a hash table, which ``refill`` moves into a larger one
    measure_cosines, measure_products, measure_distances
                    compute the similarity of vectors as Spark 4.3 does: sums in double precision, of eight
                    products at a time, and a result in single precision
    select          finds the pairs of a tile of products that satisfy a linear form
    push_best, select_best
                    find the pairs of a tile whose scores may be among the k greatest of a row

Every index shape is a case of ``walk``: scan has one bucket and no suffix, sorted has one bucket with a
suffix, hash has a bucket per key, hash_sorted has a bucket per key with a suffix, grid has equal-depth cells
of one key with the other key as the suffix, and intervals has a bucket per class of lengths with the start as
the suffix. BiStream (section 3.3) calls the checks piggybacked secondary predicates.

*Zones.* Each block of ``BLOCK`` rows may have a zone: the least and the greatest value of some checked
columns. A zone outside the interval of a probe excludes its block. There are also zones of ``BLOCK`` zones,
and so on up to one zone. So a walk passes rows that another conjunct excludes in logarithmic time, as an
augmented interval tree does (cgranges: Li and Rong, Bioinformatics 2021).
"""

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
F = TypeVar("F", bound=Callable[..., object])

LOWEST, HIGHEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
BLOCK_BITS = 3
BLOCK = 1 << BLOCK_BITS
"""The number of rows of a block, and of zones of a zone."""
STRETCH = 64
"""The number of values of a tile that are passed together if none of them is great enough."""
GROUP = 8
"""The number of products of floats that Spark adds to a sum at a time."""


def jit(function: F) -> F:
    """Compile a kernel without Python objects and without the GIL. Compiler options are set nowhere else.

    ``cache=True`` keeps machine code beside the package (or in NUMBA_CACHE_DIR), so only the first worker on
    a machine compiles. Numba writes cache files under a temporary name and renames them, so several processes
    may fill one cache at the same time (``tests/unit/kernels/test_kernels.py`` tests this). Fast-math stays
    off, because NaN must compare as Spark defines it.
    """
    return cast(F, numba.njit(function, cache=True, nogil=True))


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


def order_inside(by_bucket: Int64s, offsets: Int64s, minor: Int64s) -> Int64s:
    """Order row numbers by bucket, and by ``minor`` inside a bucket.

    Two unstable sorts and one pass are 2.5 times as fast as ``np.lexsort``, which sorts stably twice.

    Parameters
    ----------
    by_bucket : int64, shape (n,)
        The row numbers, grouped by bucket.
    offsets : int64, shape (buckets + 1,)
        Bucket b is ``by_bucket[offsets[b]:offsets[b + 1]]``.
    minor : int64, shape (n,)
        The key inside the bucket for each row number.

    Examples
    --------
    >>> order_inside(np.array([3, 0, 2, 1]), np.array([0, 2, 4]), np.array([7, 5, 6, 8]))
    array([0, 3, 1, 2])
    """
    bucket_of = np.empty_like(by_bucket)
    bucket_of[by_bucket] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    out = np.empty_like(by_bucket)
    _place(np.argsort(minor), bucket_of, offsets[:-1].copy(), out)
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
    """Write for each probe p the first i in [first[p], last[p]) with values[i] >= keys[p], or ``last[p]``.

    If ``is_after``, it is the first i with values[i] > keys[p]. The values between ``first[p]`` and
    ``last[p]`` ascend. An empty part gives ``first[p]``. The loop has no branch, as in ``lower_bound``.
    """
    for p in range(len(keys)):
        start, key = first[p], keys[p]
        n = last[p] - start
        while n > 0:
            half = (n + 1) >> 1
            value = values[start + half - 1]
            start += half * ((value < key) | (is_after & (value == key)))
            n -= half
        found[p] = start


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
    zones: Int64s,
    levels: Int64s,
    zoned: Int64s,
    checks: Int64s,
    most: int,
) -> int:
    """Walk the buckets of a run, and emit every stored tuple inside the box of a probe.

    For each probe p, each bucket b in [first[p], last[p]), and each stored row i of b with
    slo[p] <= rows[i, suffix] <= shi[p]: emit (p, i) iff lo[p, j] <= rows[i, columns[j]] <= hi[p, j] for all
    j. The pairs fill the output buffers, and their number is returned.

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
                if has_zones and i & (BLOCK - 1) == 0:
                    i = pass_blocks(zones, levels, i, end, zoned, checks, lo, hi, p)
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
                    value = rows[i, columns[j]]
                    if value < lo[p, j] or value > hi[p, j]:
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
    """Whether no row of a zone lies in the intervals of probe ``p``.

    Columns ``2 * zoned[z]`` and ``2 * zoned[z] + 1`` of ``zones`` have the least and the greatest value of
    the column that check ``checks[z]`` compares.
    """
    for z in range(len(zoned)):
        least = 2 * zoned[z]
        j = checks[z]
        if zones[zone, least] > hi[p, j] or zones[zone, least + 1] < lo[p, j]:
            return True
    return False


@jit
def add_products(x: Singles, i: int, y: Singles, j: int, size: int) -> float:
    """Sum the products of ``size`` floats that begin at ``x[i]`` and at ``y[j]``."""
    total = 0.0
    whole = size - size % GROUP
    for k in range(0, whole, GROUP):
        group = np.float64(x[i + k]) * np.float64(y[j + k])
        for e in range(k + 1, k + GROUP):
            group += np.float64(x[i + e]) * np.float64(y[j + e])
        total += group
    for k in range(whole, size):
        total += np.float64(x[i + k]) * np.float64(y[j + k])
    return total


@jit
def add_squares(x: Singles, i: int, y: Singles, j: int, size: int) -> float:
    """Sum the squared differences of ``size`` floats that begin at ``x[i]`` and at ``y[j]``."""
    total = 0.0
    whole = size - size % GROUP
    for k in range(0, whole, GROUP):
        difference = np.float64(x[i + k]) - np.float64(y[j + k])
        group = difference * difference
        for e in range(k + 1, k + GROUP):
            difference = np.float64(x[i + e]) - np.float64(y[j + e])
            group += difference * difference
        total += group
    for k in range(whole, size):
        difference = np.float64(x[i + k]) - np.float64(y[j + k])
        total += difference * difference
    return total


@jit
def measure_cosines(
    x: Singles,
    x_starts: Int64s,
    y: Singles,
    y_starts: Int64s,
    sizes: Int64s,
    values: Floats,
    is_null: Bools,
) -> None:
    """Write the cosine of each pair of vectors that is not NULL, and whether it is NULL.

    Vector p of ``x`` begins at ``x_starts[p]`` and has ``sizes[p]`` floats, as vector p of ``y`` has.
    """
    for p in range(len(sizes)):
        if is_null[p]:
            continue
        i, j, size = x_starts[p], y_starts[p], sizes[p]
        length = math.sqrt(add_products(x, i, x, i, size) * add_products(y, j, y, j, size))
        if length == 0.0:
            is_null[p] = True
        else:
            values[p] = np.float32(add_products(x, i, y, j, size) / length)


@jit
def measure_products(
    x: Singles,
    x_starts: Int64s,
    y: Singles,
    y_starts: Int64s,
    sizes: Int64s,
    values: Floats,
    is_null: Bools,
) -> None:
    """Write the inner product of each pair of vectors that is not NULL, as ``measure_cosines`` does."""
    for p in range(len(sizes)):
        if not is_null[p]:
            values[p] = np.float32(add_products(x, x_starts[p], y, y_starts[p], sizes[p]))


@jit
def measure_distances(
    x: Singles,
    x_starts: Int64s,
    y: Singles,
    y_starts: Int64s,
    sizes: Int64s,
    values: Floats,
    is_null: Bools,
) -> None:
    """Write the distance of each pair of vectors that is not NULL, as ``measure_cosines`` does."""
    for p in range(len(sizes)):
        if not is_null[p]:
            values[p] = np.float32(math.sqrt(add_squares(x, x_starts[p], y, y_starts[p], sizes[p])))


@jit
def has_value(row: Singles, added: Singles, edge: float, is_above: bool) -> bool:
    """Whether row[c] + added[c] >= edge, or <=, for some c. Compilers make vectors of such a plain loop."""
    n = 0
    if is_above:
        for c in range(len(row)):
            if row[c] + added[c] >= edge:
                n += 1
    else:
        for c in range(len(row)):
            if row[c] + added[c] <= edge:
                n += 1
    return n > 0


@jit
def has_score(row: Singles, scale: Singles, added: Singles, edge: float) -> bool:
    """Whether row[c] * scale[c] + added[c] >= edge for some c."""
    n = 0
    for c in range(len(row)):
        if row[c] * scale[c] + added[c] >= edge:
            n += 1
    return n > 0


@jit
def select(
    tile: Singles,
    added: Singles,
    bound: Singles,
    is_above: bool,
    passed: Singles,
    limit: Singles,
    cursor: Int64s,
    out_row: Int64s,
    out_column: Int64s,
) -> int:
    """Write the places (p, s) where tile[p, s] + added[s] >= bound[p], or <=; return their number.

    Places where tile[p, s] + passed[s] >= limit[p], or <=, are left out. The search begins at ``cursor``, a
    row and a column. It is done if fewer places are returned than the buffers hold; otherwise call the
    function again.
    """
    n = 0
    column = cursor[1]
    for p in range(cursor[0], len(tile)):
        edge, row = bound[p], tile[p]
        for start in range(column, len(row), STRETCH):
            stop = min(start + STRETCH, len(row))
            if not has_value(row[start:stop], added[start:stop], edge, is_above):
                continue
            for s in range(start, stop):
                value, other = row[s] + added[s], row[s] + passed[s]
                is_kept = value >= edge if is_above else value <= edge
                is_left_out = other >= limit[p] if is_above else other <= limit[p]
                if is_kept and not is_left_out:
                    if n == len(out_row):
                        cursor[0], cursor[1] = p, s
                        return n
                    out_row[n] = p
                    out_column[n] = s
                    n += 1
        column = 0
    cursor[0] = len(tile)
    return n


@jit
def push_best(
    tile: Singles,
    scale: Singles,
    low: Singles,
    slack: Singles,
    best: Singles,
    lows: Int64s,
    highs: Int64s,
    keys: Int64s,
    rows_probe: bool,
) -> None:
    """Keep the greatest lower bounds of scores of each row of a tile in its heap ``best[row]``.

    The lower bound of (r, c) is tile[r, c] * scale[c] + low[c] - slack[r]. It counts if the pair is inside,
    as ``is_inside`` defines it. The root of a heap is its least number.
    """
    for r in range(len(tile)):
        row = tile[r]
        for start in range(0, len(row), STRETCH):
            stop = min(start + STRETCH, len(row))
            edge = best[r, 0] + slack[r]
            if not has_score(row[start:stop], scale[start:stop], low[start:stop], edge):
                continue
            for c in range(start, stop):
                score = row[c] * scale[c] + low[c] - slack[r]
                if score <= best[r, 0] or not is_inside(lows, highs, keys, rows_probe, r, c):
                    continue
                push(best, r, score)


@jit
def push(best: Singles, r: int, score: float) -> None:
    """Replace the least number of the heap ``best[r]`` by a greater one."""
    k = best.shape[1]
    at, child = 0, 1
    while child < k:
        if child + 1 < k and best[r, child + 1] < best[r, child]:
            child += 1
        if best[r, child] >= score:
            break
        best[r, at] = best[r, child]
        at, child = child, 2 * child + 1
    best[r, at] = score


@jit
def select_best(
    tile: Singles,
    scale: Singles,
    high: Singles,
    slack: Singles,
    best: Singles,
    lows: Int64s,
    highs: Int64s,
    keys: Int64s,
    rows_probe: bool,
    cursor: Int64s,
    out_row: Int64s,
    out_column: Int64s,
) -> int:
    """Write the places (r, c) that are inside and whose upper bound, tile[r, c] * scale[c] + high[c] +
    slack[r], is not below the root of the heap ``best[r]``; return their number.

    ``cursor`` and the buffers are those of ``select``.
    """
    n = 0
    column = cursor[1]
    for r in range(cursor[0], len(tile)):
        row, edge = tile[r], best[r, 0] - slack[r]
        for start in range(column, len(row), STRETCH):
            stop = min(start + STRETCH, len(row))
            if not has_score(row[start:stop], scale[start:stop], high[start:stop], edge):
                continue
            for c in range(start, stop):
                is_high = row[c] * scale[c] + high[c] >= edge
                if is_high and is_inside(lows, highs, keys, rows_probe, r, c):
                    if n == len(out_row):
                        cursor[0], cursor[1] = r, c
                        return n
                    out_row[n] = r
                    out_column[n] = c
                    n += 1
        column = 0
    cursor[0] = len(tile)
    return n


@jit
def is_inside(lows: Int64s, highs: Int64s, keys: Int64s, rows_probe: bool, r: int, c: int) -> bool:
    """Whether the keys of the stored tuple lie in the intervals of the probe. Rows or columns of the tile are
    probes."""
    p, s = (r, c) if rows_probe else (c, r)
    inside = True
    for j in range(keys.shape[1]):
        if keys[s, j] < lows[p, j] or keys[s, j] > highs[p, j]:
            inside = False
            break
    return inside


@jit
def count_bits(word: int) -> np.int64:
    """Count the bits of 64 that are 1."""
    bits = np.uint64(word)
    bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@jit
def select_bits(
    x: Int64s, y: Int64s, least: int, most: int, cursor: Int64s, out_row: Int64s, out_column: Int64s
) -> int:
    """Write the places (p, s) where ``least`` to ``most`` bits of x[p] and y[s] differ; return their number.

    ``cursor`` and the buffers are those of ``select``.
    """
    n = 0
    column = cursor[1]
    for p in range(cursor[0], len(x)):
        for s in range(column, len(y)):
            differing = count_bits(x[p] ^ y[s])
            if least <= differing <= most:
                if n == len(out_row):
                    cursor[0], cursor[1] = p, s
                    return n
                out_row[n] = p
                out_column[n] = s
                n += 1
        column = 0
    cursor[0] = len(x)
    return n


@jit
def select_words(
    x: Int64s, y: Int64s, least: int, most: int, cursor: Int64s, out_row: Int64s, out_column: Int64s
) -> int:
    """Do what ``select_bits`` does for columns of words, x[:, p] and y[:, s]. It takes 2.5 times as long for
    one word."""
    n = 0
    column = cursor[1]
    for p in range(cursor[0], x.shape[1]):
        for s in range(column, y.shape[1]):
            differing = np.int64(0)
            for word in range(len(x)):
                differing += count_bits(x[word, p] ^ y[word, s])
            if least <= differing <= most:
                if n == len(out_row):
                    cursor[0], cursor[1] = p, s
                    return n
                out_row[n] = p
                out_column[n] = s
                n += 1
        column = 0
    cursor[0] = x.shape[1]
    return n


@jit
def select_texts(
    signatures: Int64s,
    others: Int64s,
    first: Int64s,
    last: Int64s,
    most: int,
    cursor: Int64s,
    out_row: Int64s,
    out_column: Int64s,
) -> int:
    """Write the places (p, s) of texts that may be at most ``most`` edits apart; return their number.

    ``others`` are the signatures of texts in the order of their lengths. Those from ``first[p]`` to
    ``last[p]`` have a length that is near enough. ``cursor`` and the buffers are those of ``select``.
    """
    n = 0
    column = cursor[1]
    for p in range(cursor[0], len(signatures)):
        signature = signatures[p]
        for s in range(max(column, first[p]), last[p]):
            if count_bits(signature ^ others[s]) > 2 * most:
                continue
            if n == len(out_row):
                cursor[0], cursor[1] = p, s
                return n
            out_row[n] = p
            out_column[n] = s
            n += 1
        column = 0
    cursor[0] = len(signatures)
    return n


@jit
def read_characters(
    data: npt.NDArray[np.uint8], offsets: Int64s, characters: npt.NDArray[np.uint32], starts: Int64s
) -> int:
    """Write the bytes of each character of UTF-8 as a number, and where each text begins; return the number
    of characters.

    As in Spark, the first byte of a character says how many it has, and a wrong first byte is a character.
    """
    n = 0
    for text in range(len(offsets) - 1):
        at, end = offsets[text], offsets[text + 1]
        while at < end:
            first = data[at]
            size = 1
            if 0xC2 <= first <= 0xDF:
                size = 2
            elif 0xE0 <= first <= 0xEF:
                size = 3
            elif 0xF0 <= first <= 0xF4:
                size = 4
            character = np.uint32(0)
            for each in range(at, min(at + size, end)):
                character = (character << np.uint32(8)) | np.uint32(data[each])
            characters[n] = character
            n += 1
            at += size
        starts[text + 1] = n
    return n


@jit
def sign_characters(characters: npt.NDArray[np.uint32], starts: Int64s, signatures: Int64s) -> None:
    """Write the signature of each text: a bit for each of its characters, by a hash of 6 bits."""
    for text in range(len(signatures)):
        signature = np.uint64(0)
        for at in range(starts[text], starts[text + 1]):
            place = (np.uint64(characters[at]) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58)
            signature |= np.uint64(1) << place
        signatures[text] = np.int64(signature)


@jit
def count_edits(
    x: npt.NDArray[np.uint32],
    x_starts: Int64s,
    y: npt.NDArray[np.uint32],
    y_starts: Int64s,
    values: Floats,
) -> None:
    """Write the edit distance of each pair of texts."""
    for p in range(len(values)):
        values[p] = count_edits_of(x[x_starts[p] : x_starts[p + 1]], y[y_starts[p] : y_starts[p + 1]])


@jit
def count_edits_of(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32]) -> int:
    """Compute the edit distance of two texts."""
    i, i_end, j, j_end = 0, len(x), 0, len(y)
    # What the texts begin and end with alike needs no edit.
    while i < i_end and j < j_end and x[i] == y[j]:
        i, j = i + 1, j + 1
    while i < i_end and j < j_end and x[i_end - 1] == y[j_end - 1]:
        i_end, j_end = i_end - 1, j_end - 1
    longer, shorter = x[i:i_end], y[j:j_end]
    if len(longer) < len(shorter):
        longer, shorter = shorter, longer
    if len(shorter) == 0:
        return len(longer)
    if len(shorter) <= 64:
        return count_edits_by_bits(longer, shorter)
    return count_edits_by_rows(longer, shorter)


@jit
def count_edits_by_bits(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32]) -> int:
    """Compute the edit distance of ``x`` and a text ``y`` of 1 to 64 characters.

    A row of the table is a word: bit b says whether the value grows (``ups``) or falls (``downs``) at
    character b (Myers, Journal of the ACM 1999, in the form of Hyyrö, 2003).
    """
    one, zero = np.uint64(1), np.uint64(0)
    ups, downs, last = ~zero, zero, one << np.uint64(len(y) - 1)
    distance = len(y)
    for a in range(len(x)):
        equal = zero
        for b in range(len(y)):
            equal |= np.uint64(x[a] == y[b]) << np.uint64(b)
        vertical = equal | downs
        horizontal = (((equal & ups) + ups) ^ ups) | equal
        grows, falls = downs | ~(horizontal | ups), ups & horizontal
        distance += int((grows & last) != zero) - int((falls & last) != zero)
        grows, falls = (grows << one) | one, falls << one
        ups, downs = falls | ~(vertical | grows), grows & vertical
    return distance


@jit
def count_edits_by_rows(x: npt.NDArray[np.uint32], y: npt.NDArray[np.uint32]) -> int:
    """Compute the edit distance of two texts by the rows of the table of Wagner and Fischer."""
    row = np.arange(len(y) + 1)
    for a in range(len(x)):
        diagonal = row[0]
        row[0] = a + 1
        for b in range(len(y)):
            change = diagonal + (x[a] != y[b])
            diagonal = row[b + 1]
            row[b + 1] = min(change, diagonal + 1, row[b] + 1)
    return int(row[len(y)])


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
    those of ``thetastream.index.measures.sets``.
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


@jit
def score_bits(x: Int64s, y: Int64s, scores: Singles) -> None:
    """Write the number of bits in which x[p] and y[s] differ."""
    for p in range(len(x)):
        for s in range(len(y)):
            scores[p, s] = count_bits(x[p] ^ y[s])


@jit
def score_texts(
    x: npt.NDArray[np.uint32],
    x_starts: Int64s,
    y: npt.NDArray[np.uint32],
    y_starts: Int64s,
    signatures: Int64s,
    others: Int64s,
    best: Singles,
    lows: Int64s,
    highs: Int64s,
    keys: Int64s,
    rows_probe: bool,
    scores: Singles,
) -> None:
    """Write the negative edit distance of each pair of texts, or a bound of it if it is less than the least
    score of the heap.

    The bound follows from the lengths and from the signatures. Texts with a small bound come first, so that
    the heap is soon full of near ones. The last arguments are those of ``push_best``, but the heaps stay as
    they are.
    """
    m, k = len(others), best.shape[1]
    heap = np.empty((1, k), dtype=np.float32)
    bounds = np.empty(m, dtype=np.int64)
    for p in range(len(signatures)):
        heap[0] = best[p]
        size = x_starts[p + 1] - x_starts[p]
        most = 0
        for s in range(m):
            differing = (count_bits(signatures[p] ^ others[s]) + 1) // 2
            bounds[s] = max(abs(size - (y_starts[s + 1] - y_starts[s])), differing)
            scores[p, s] = -bounds[s]
            if bounds[s] > most:
                most = int(bounds[s])
        # The texts in the order of their bounds.
        ends = np.zeros(most + 2, dtype=np.int64)
        for s in range(m):
            ends[bounds[s] + 1] += 1
        ends = np.cumsum(ends)
        order = np.empty(m, dtype=np.int64)
        for s in range(m):
            order[ends[bounds[s]]] = s
            ends[bounds[s]] += 1
        for at in range(m):
            c = int(order[at])
            if -bounds[c] < heap[0, 0]:
                break
            if not is_inside(lows, highs, keys, rows_probe, p, c):
                continue
            edits = count_edits_of(x[x_starts[p] : x_starts[p + 1]], y[y_starts[c] : y_starts[c + 1]])
            scores[p, c] = -edits
            if -edits > heap[0, 0]:
                push(heap, 0, float(-edits))


@jit
def score_points(x: Floats, y: Floats, scores: Singles) -> None:
    """Write the negative square of the length between x[p] and y[s]."""
    for p in range(len(x)):
        for s in range(len(y)):
            scores[p, s] = -add_square(x, p, y, s)


@jit
def select_points(
    x: Floats,
    y: Floats,
    first: Int64s,
    last: Int64s,
    most: float,
    cursor: Int64s,
    out_row: Int64s,
    out_column: Int64s,
) -> int:
    """Write the places (p, s) of points in [first[p], last[p]) whose squared distance is at most ``most``;
    return their number.

    ``cursor`` and the buffers are those of ``select``.
    """
    n = 0
    column = cursor[1]
    for p in range(cursor[0], len(x)):
        for s in range(max(column, first[p]), last[p]):
            if add_square(x, p, y, s) > most:
                continue
            if n == len(out_row):
                cursor[0], cursor[1] = p, s
                return n
            out_row[n] = p
            out_column[n] = s
            n += 1
        column = 0
    cursor[0] = len(x)
    return n


@jit
def add_square(x: Floats, p: int, y: Floats, s: int) -> float:
    """Return the squared distance of two points, as Spark adds it up."""
    square = 0.0
    for axis in range(x.shape[1]):
        difference = x[p, axis] - y[s, axis]
        square += difference * difference
    return square


@jit
def measure_metres(x: Floats, y: Floats, diameter: float, values: Floats) -> None:
    """Write the distance on a sphere of each pair of points on the unit sphere."""
    for p in range(len(values)):
        square = add_square(x, p, y, p)
        values[p] = diameter * find_arcsine(1.0 if square > 4.0 else math.sqrt(square) / 2.0)


@jit
def find_arcsine(x: float) -> float:
    """Return the arcsine of a number from 0 to 1, as Java does.

    It is the algorithm of fdlibm (Sun Microsystems, 1993): a rational function R(t) of t = x^2 below 0.5, and
    pi/2 - 2 arcsin(sqrt((1 - x) / 2)) above. Some constants have a second part for more digits.
    """
    half_pi, half_pi_rest, quarter_pi = (
        1.57079632679489655800e00,
        6.12323399573676603587e-17,
        7.85398163397448278999e-01,
    )
    if x >= 1.0:
        return x * half_pi + x * half_pi_rest
    if x < 0.5:
        if x < 2.0**-27:
            return x
        t = x * x
    else:
        t = (1.0 - x) * 0.5
    p = 7.91534994289814532176e-04 + t * 3.47933107596021167570e-05
    p = 2.01212532134862925881e-01 + t * (-4.00555345006794114027e-02 + t * p)
    p = t * (1.66666666666666657415e-01 + t * (-3.25565818622400915405e-01 + t * p))
    q = -6.88283971605453293030e-01 + t * 7.70381505559019352791e-02
    q = 1.0 + t * (-2.40339491173441421878e00 + t * (2.02094576023350569471e00 + t * q))
    if x < 0.5:
        return x + x * (p / q)
    s = math.sqrt(t)
    if x >= 0.97499990463256836:  # 0.975 in 32 bits
        return half_pi - (2.0 * (s + s * (p / q)) - half_pi_rest)
    fraction, exponent = math.frexp(s)
    w = math.ldexp(math.floor(fraction * 2.0**21) / 2.0**21, exponent)  # the first 21 bits
    c = (t - w * w) / (s + w)
    rest = 2.0 * s * (p / q) - (half_pi_rest - 2.0 * c)
    return quarter_pi - (rest - (quarter_pi - 2.0 * w))
