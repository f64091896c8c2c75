"""Kernels that compare the pairs of a tile: vectors, masks of bits and texts.

measure_cosines, measure_products, measure_distances
                compute the similarity of vectors as Spark 4.3 does: sums in double precision, of eight
                products at a time, and a result in single precision
select          finds the pairs of a tile of products that satisfy a linear form
push_best, select_best
                find the pairs of a tile whose scores may be among the k greatest of a row
select_bits, score_bits
                compare masks by the number of bits that differ
select_texts, score_texts, count_edits
                compare texts by the edits between them (Myers, JACM 1999)
"""

import math

import numpy as np
import numpy.typing as npt

from thetastream.kernels.compiling import Bools, Floats, Int64s, Singles, jit

STRETCH = 64
"""The number of values of a tile that are passed together if none of them is great enough."""
GROUP = 8
"""The number of products of floats that Spark adds to a sum at a time."""


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
def score_bits(x: Int64s, y: Int64s, scores: Singles) -> None:
    """Write the number of bits in which x[p] and y[s] differ."""
    for p in range(len(x)):
        for s in range(len(y)):
            scores[p, s] = count_bits(x[p] ^ y[s])


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
