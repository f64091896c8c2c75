"""The index shapes that compare many tuples at once by a measure, for example by products of matrices.

    probes   [ ][ ][ ]               a tile is some probes and the stored rows that they visit
    stored   [ ][ ][ ][ ][ ][ ]      the measure proposes pairs of a tile, and only these are compared further

``Tiles`` keeps all rows in one bucket, and ``HashTiles`` has one bucket for each distinct key. A small bucket
costs less if all of its pairs are proposed.
"""

from collections.abc import Iterator

import numpy as np

from thetastream.core.keys import HIGHEST, Int64s
from thetastream.core.measure import (
    Floats,
    LimitSearch,
    MeasureLimit,
    NearestSearch,
    Proposal,
    Ranges,
    list_ranges,
    pair_all,
)
from thetastream.core.row_limit import LimitBlock, RowLimit
from thetastream.core.sides import Side
from thetastream.index.base import (
    Fit,
    Indexable,
    LayoutRules,
    MeasuredSearch,
    Pairs,
    ProbeCost,
    RankedSearch,
    Search,
    StoredRows,
)
from thetastream.index.hash import Hash
from thetastream.index.scan import Scan

PAIR_S = 6e-9
"""Seconds to compare a pair of vectors of 384 floats in a tile, on one core."""
TILE_PROBES = 1024
SMALL = 1 << 10
"""With fewer pairs, a tile costs more than the comparison of each pair."""


class Tiles(Scan):
    """One bucket, whose rows are compared by a measure."""

    name = "tiles"
    strength = 35
    needs = "a measure, such as the similarity of vectors"
    cost = ProbeCost("n pairs of tiles", step_s=PAIR_S, looks_at_all=True)
    layout = LayoutRules(has_one_bucket=True, uses_measures=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        if not offer.has_measure or ((offer.equalities or offer.bands) and not is_asked):
            return None
        return Fit((), (), "a measure of all tuples in the window")

    def match(self, run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs]:
        return match_tiles(run, search, capacity) or super().match(run, search, capacity)


class HashTiles(Hash):
    """One bucket for each distinct key, whose rows are compared by a measure."""

    name = "hash_tiles"
    strength = 45
    needs = "an equality and a measure, such as the similarity of vectors"
    layout = LayoutRules(uses_measures=True)

    def fit(self, offer: Indexable, is_asked: bool) -> Fit | None:
        if not offer.has_measure or not offer.equalities or (offer.bands and not is_asked):
            return None
        return Fit(offer.equalities, (), "equalities, then a measure of all tuples of a bucket")

    def match(self, run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs]:
        return match_tiles(run, search, capacity) or super().match(run, search, capacity)


def match_tiles(run: StoredRows, search: Search, capacity: int) -> Iterator[Pairs] | None:
    """Find the stored rows that a measure proposes and that lie in all intervals of each probe.

    Return None if the search has no measure.
    """
    if search.measured is not None:
        return _match_limit(run, search, search.measured, capacity)
    return None if search.ranked is None else _match_nearest(run, search, search.ranked, capacity)


def _match_limit(run: StoredRows, search: Search, measured: MeasuredSearch, capacity: int) -> Iterator[Pairs]:
    # 1. Order the probes by the rows that they visit, and cut tiles where the rows of two probes are apart.
    #    Then order them by their thresholds, so that those of a tile are similar.
    first, last = run.offsets[search.buckets.low], run.offsets[search.buckets.high]
    order = np.lexsort((*_list_thresholds(measured), last, first))
    order = order[(last > first)[order]]
    starts, ends, lows, highs = _cut_tiles(first[order], last[order], TILE_PROBES)
    is_small = (ends - starts) * (highs - lows) < SMALL
    # 2. Propose all pairs of small tiles.
    in_small = np.repeat(is_small, ends - starts)
    probes = order[in_small]
    for found, rows in list_ranges(first[probes], last[probes], capacity):
        yield _check(run, search, probes[found], rows, len(found))
    # 3. Let the measure propose pairs of the others.
    for tile in np.flatnonzero(~is_small):
        probes = order[starts[tile] : ends[tile]]
        visited = np.arange(lows[tile], highs[tile])
        n_candidates = len(probes) * len(visited)
        for found, rows, is_proved in _propose(measured, probes, visited, capacity):
            is_visited = (rows >= first[found]) & (rows < last[found])
            pairs = _check(run, search, found[is_visited], rows[is_visited], n_candidates)
            yield pairs._replace(is_proved=is_proved)
            n_candidates = 0


def _list_thresholds(measured: MeasuredSearch) -> list[Floats]:
    """List the thresholds of probes, if these have any."""
    limit = measured.limit
    has_thresholds = isinstance(limit, RowLimit) and limit.side is Side.LEFT
    return [measured.thresholds.values[measured.places]] if has_thresholds else []


def _propose(measured: MeasuredSearch, probes: Int64s, rows: Int64s, capacity: int) -> Iterator[Proposal]:
    """Propose pairs of these probes and stored rows, by their numbers."""
    for block, mine, theirs in _cut_blocks(measured, probes, rows):
        if block.limit is None:
            for pairs in pair_all(mine, theirs, capacity):
                yield Proposal(*pairs)
            continue
        search = LimitSearch(block.limit, measured.probes, measured.places[mine], measured.stored, theirs)
        for near, far, is_proved in block.limit.measure.propose(search, capacity):
            yield Proposal(mine[near], theirs[far], is_proved and block.is_exact)


def _cut_blocks(
    measured: MeasuredSearch, probes: Int64s, rows: Int64s
) -> Iterator[tuple[LimitBlock, Int64s, Int64s]]:
    """Cut the probes, or the stored rows, where they have similar thresholds. A constant needs no cut."""
    limit = measured.limit
    if isinstance(limit, MeasureLimit):
        yield LimitBlock(limit, rows, is_exact=True), probes, rows
    elif limit.side is Side.LEFT:
        for block in limit.cut(measured.thresholds.take(measured.places[probes])):
            yield block, probes[block.rows], rows
    else:
        for block in limit.cut(measured.thresholds.take(rows)):
            yield block, probes, rows[block.rows]


def _match_nearest(run: StoredRows, search: Search, ranked: RankedSearch, capacity: int) -> Iterator[Pairs]:
    # 1. Order the probes by the rows that they visit, and cut them where the rows of two probes are apart.
    first, last = run.offsets[search.buckets.low], run.offsets[search.buckets.high]
    order = np.lexsort((last, first))
    order = order[(last > first)[order]]
    starts, ends, lows, highs = _cut_tiles(first[order], last[order], HIGHEST)
    is_small = (ends - starts) * (highs - lows) < SMALL
    # 2. Propose all pairs of small groups.
    probes = order[np.repeat(is_small, ends - starts)]
    for found, rows in list_ranges(first[probes], last[probes], capacity):
        yield _check(run, search, probes[found], rows, len(found))
    # 3. Let the measure propose pairs of the others.
    one, is_of_probes = ranked.ranked, ranked.best is not None
    for group in np.flatnonzero(~is_small):
        probes, rows = order[starts[group] : ends[group]], np.arange(lows[group], highs[group])
        places = ranked.places[probes]
        mine, theirs = (ranked.probes, places), (ranked.stored, rows)
        seekers, others = (mine, theirs) if is_of_probes else (theirs, mine)
        best = np.full((len(rows), one.k), -np.inf, dtype=np.float32)
        if ranked.best is not None:
            best = ranked.best[places]
        inside = _find_intervals(run, search, ranked, probes, rows, first[probes], last[probes])
        sought = NearestSearch(one.is_descending, *seekers, *others, best, inside, is_of_probes)
        n_candidates = len(probes) * len(rows)
        for near, far in one.measure.propose_nearest(sought, capacity):
            at, stored = (near, far) if is_of_probes else (far, near)
            is_visited = (rows[stored] >= first[probes[at]]) & (rows[stored] < last[probes[at]])
            yield _check(run, search, probes[at][is_visited], rows[stored][is_visited], n_candidates)
            n_candidates = 0
        if ranked.best is not None:
            ranked.best[places] = best


def _find_intervals(
    run: StoredRows,
    search: Search,
    ranked: RankedSearch,
    probes: Int64s,
    rows: Int64s,
    first: Int64s,
    last: Int64s,
) -> Ranges:
    """Find which pairs of probes and stored rows are partners. Row numbers and values are keys, too."""
    low, high, keys = [first], [last - 1], [rows]
    for column, span in search.checked.items():
        low.append(span.low[probes])
        high.append(span.high[probes])
        keys.append(run.rows[rows, column])
    for mine, theirs in ranked.same:
        low.append(mine[ranked.places[probes]])
        high.append(low[-1])
        keys.append(theirs[rows])
    return Ranges(*(np.ascontiguousarray(np.stack(columns, axis=1)) for columns in (low, high, keys)))


def _cut_tiles(first: Int64s, last: Int64s, most: int) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Cut probes, in order of their first row, into tiles of ``most`` probes at most.

    Returns
    -------
    tuple of int64 arrays
        For each tile its first probe, the probe behind its last one, its first row, and the row behind its
        last one.

    Examples
    --------
    >>> [part.tolist() for part in _cut_tiles(np.array([0, 0, 4, 5]), np.array([4, 4, 6, 9]), 9)]
    [[0, 2], [2, 4], [0, 4], [4, 9]]
    """
    n = len(first)
    reach = np.maximum.accumulate(last)
    is_start = np.append(True, first[1:] >= reach[:-1])[:n]
    groups = np.flatnonzero(is_start)
    sizes = np.diff(np.append(groups, n))
    # A group of many probes becomes several tiles.
    n_tiles = -(-sizes // most)
    number = np.arange(n_tiles.sum()) - np.repeat(np.cumsum(n_tiles) - n_tiles, n_tiles)
    starts = np.repeat(groups, n_tiles) + number * most
    ends = np.append(starts[1:], n)[: len(starts)]
    return starts, ends, first[starts], np.maximum.reduceat(last, starts) if n else last


def _check(run: StoredRows, search: Search, found: Int64s, rows: Int64s, n_candidates: int) -> Pairs:
    """Keep the pairs that lie in all intervals."""
    for column, span in search.checked.items():
        keys = run.rows[rows, column]
        is_inside = (keys >= span.low[found]) & (keys <= span.high[found])
        found, rows = found[is_inside], rows[is_inside]
    return Pairs(found, rows, n_candidates)
