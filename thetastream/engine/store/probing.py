"""Probes segments: finds the stored tuples that lie in the boxes of probing tuples, piece by piece."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import RowFacts, cut_matches
from thetastream.core.keys import HIGHEST, Int64s, sort_keys, sort_neighbours
from thetastream.core.row_limit import read_thresholds
from thetastream.core.sides import Side
from thetastream.engine.store.box import Box, IndexPlan, build_box
from thetastream.engine.store.run import TIME_COLUMN, Run, search
from thetastream.engine.store.segment import SegmentMeta, SegmentStore
from thetastream.index.base import MeasuredSearch, RankedSearch, Span

MIN_PAIRS_AT_ONCE = 1 << 10
PAIRS_AT_ONCE = 1 << 17
"""The smallest and the largest number of pairs in one piece of the output. Pieces of wide tuples have fewer
pairs."""
BYTES_AT_ONCE = 1 << 25
STRETCH, SAMPLES = 1 << 15, 64
"""How many probes stretches have at least on average, and how many of each are looked at to cut them."""
UNLIKE = 1 / 8
"""About how far the windows of a stretch lie apart, as a share of their length, if there are enough probes.
Each stretch reads the segments from their first key to their last, so more stretches cost more."""
FAR = 1 / 20, 19 / 20
"""The shares of windows between which this distance is measured, so that a few wrong times do not count."""
CELLS, FEWEST = 128, 64
"""If the index has cells, the number of groups of the probes of a stretch, and the least size of a group."""
FEW_OTHERS = 1 / 8
"""The share of probes outside a segment that are searched with the others."""


class Candidates(NamedTuple):
    """Some of the pairs that an index has found."""

    probes: Int64s
    """Positions among the tuples of which the probes are a selection."""
    payload: pa.RecordBatch
    stored: Int64s
    """Positions in the stored payload."""
    n_compared: int
    """The number of stored tuples that were compared."""
    is_proved: bool = False
    """Whether the first measure of the condition is true for all of these pairs."""


def probe_segments(
    segments: Sequence[SegmentMeta],
    store: SegmentStore,
    plan: IndexPlan,
    probes: Int64s,
    probe_facts: RowFacts,
    has_one: bool = False,
    places: Int64s | None = None,
) -> Iterator[Candidates]:
    """Find partners for probing key rows among the tuples of these segments.

    ``places`` are the positions of the probes among the tuples of ``probe_facts``; by default they are all of
    them. A piece has ``BYTES_AT_ONCE`` bytes at most, or one pair. If ``has_one``, a probe is done as soon as
    it has one partner.
    """
    n = len(probes)
    if not n or not segments:
        return
    box = build_box(plan, probes)
    has_times = plan.condition.window is not None and TIME_COLUMN in box.spans
    order, cuts = _sequence_probes(plan, box, has_times)
    box = box.arrange(order)
    everyone = np.arange(n) if places is None else places
    if order is not None:
        everyone = everyone[order]
    stretches = _Stretches(box.spans[TIME_COLUMN], cuts) if has_times else None
    best = _open_heaps(plan, probe_facts.batch.num_rows)
    is_open = np.ones(n, dtype=np.bool_)
    for meta in segments:
        # 1. Choose the probes whose window touches the segment.
        chosen: slice | Int64s = slice(0, n)
        if stretches is not None:
            chosen = stretches.find_touching(meta.min_ts, meta.max_ts)
        if has_one:
            chosen = _list_numbers(chosen)[is_open[chosen]]
        if not _count(chosen):
            continue
        run = store.get(meta)
        if stretches is None and len(segments) > 1:
            # Runs without a window may be cut by a key, as those of a large table are.
            numbers = _list_numbers(chosen)
            chosen = numbers[_find_touching(plan, run, box)[numbers]]
            if not len(chosen):
                continue
        part = box if _count(chosen) == n else box.part(chosen)
        mine = everyone[chosen]
        # 2. Skip the check of the window if the segment lies inside all windows.
        skip = frozenset[int]()
        if stretches is not None:
            low, high = part.spans[TIME_COLUMN]
            if low.max() <= meta.min_ts and high.min() >= meta.max_ts:
                skip = frozenset({TIME_COLUMN})
        # 3. Walk the segment.
        wide = probe_facts.mean + run.facts.mean
        capacity = max(MIN_PAIRS_AT_ONCE, min(PAIRS_AT_ONCE, int(BYTES_AT_ONCE / max(wide, 1))))
        most = 1 if has_one else HIGHEST
        measured = ranked = None
        if plan.index.shape.layout.uses_measures:
            measured = _prepare_measure(plan, run, probe_facts, mine)
            ranked = None if measured else _prepare_ranking(plan, run, probe_facts, mine, best)
        pairs = search(plan, run, part, skip, capacity, most, measured, ranked)
        for number, stored, n_compared, is_proved in pairs:
            if has_one:
                is_open[_list_numbers(chosen)[number]] = False
            found = mine[number]
            for piece in cut_matches(probe_facts, found, run.facts, stored, BYTES_AT_ONCE):
                compared = n_compared if piece.start == 0 else 0
                yield Candidates(found[piece], run.payload, stored[piece], compared, is_proved)


class _Stretches:
    """Stretches of probes with similar windows. They follow each other in the order of the probes."""

    def __init__(self, times: Span, cuts: Int64s) -> None:
        self._times, self._cuts = times, cuts
        self._least = np.minimum.reduceat(times.low, cuts[:-1])
        self._greatest = np.maximum.reduceat(times.high, cuts[:-1])

    def find_touching(self, first: int, last: int) -> slice | Int64s:
        """Find the probes whose windows touch the interval [first, last].

        A slice has a few others too, if they are few: that costs less than copies of all intervals.
        """
        touched = np.flatnonzero((self._least <= last) & (self._greatest >= first))
        if not len(touched):
            return slice(0, 0)
        found = slice(int(self._cuts[touched[0]]), int(self._cuts[touched[-1] + 1]))
        low, high = self._times
        is_touching = (low[found] <= last) & (high[found] >= first)
        if np.count_nonzero(~is_touching) <= FEW_OTHERS * len(is_touching):
            return found
        return np.flatnonzero(is_touching) + found.start


def _list_numbers(chosen: slice | Int64s) -> Int64s:
    return np.arange(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen


def _count(chosen: slice | Int64s) -> int:
    return chosen.stop - chosen.start if isinstance(chosen, slice) else len(chosen)


def _find_touching(plan: IndexPlan, run: Run, box: Box) -> npt.NDArray[np.bool_]:
    """Find the probes whose boxes touch the bounds of a run."""
    touches = np.ones(box.n_probes, dtype=np.bool_)
    for column, least, greatest in run.find_bounds(plan.index.shape.suffix(plan.access)):
        if column in box.spans:
            low, high = box.spans[column]
            touches &= (low <= greatest) & (high >= least)
    return touches


def _prepare_measure(plan: IndexPlan, run: Run, facts: RowFacts, places: Int64s) -> MeasuredSearch | None:
    """Prepare the first measure that the condition compares with a limit, if there is one."""
    if not plan.condition.measured:
        return None
    one = plan.condition.measured[0]
    limit = one.limit if plan.stored is Side.RIGHT else one.limit.mirrored
    sides = (facts, plan.stored.other), (run.facts, plan.stored)
    mine, theirs = (rows.derive(limit.measure, one.columns[side]) for rows, side in sides)
    found = MeasuredSearch(limit, mine, places, theirs)
    for rows, side in sides:
        column = one.thresholds[side]
        if column is not None:
            found = found._replace(thresholds=read_thresholds(rows.batch.column(column)))
    return found


def _open_heaps(plan: IndexPlan, n: int) -> npt.NDArray[np.float32] | None:
    """Open the heaps of the probes, if their partners are ranked by a measure."""
    ranked = plan.condition.ranked
    if ranked is None or plan.stored is Side.LEFT:
        return None
    return np.full((n, ranked.k), -np.inf, dtype=np.float32)


def _prepare_ranking(
    plan: IndexPlan, run: Run, facts: RowFacts, places: Int64s, best: npt.NDArray[np.float32] | None
) -> RankedSearch | None:
    """Prepare the measure that ranks partners, if there is one."""
    ranked = plan.condition.ranked
    if ranked is None:
        return None
    sides = plan.stored.other, plan.stored
    probes, stored = (
        one.derive(ranked.measure, ranked.columns[side])
        for one, side in zip((facts, run.facts), sides, strict=True)
    )
    same = tuple(
        _number_values(facts.batch.column(names[sides[0]]), run.payload.column(names[sides[1]]))
        for names in plan.condition.same
    )
    return RankedSearch(ranked, probes, places, stored, same, best)


def _number_values(mine: pa.Array, theirs: pa.Array) -> tuple[Int64s, Int64s]:
    """Number the values of two columns, so that equal values have equal numbers; NULL has -1.

    >>> [numbers.tolist() for numbers in _number_values(pa.array(["b", None]), pa.array(["a", "b"]))]
    [[0, -1], [1, 0]]
    """
    numbers = pc.fill_null(
        pc.dictionary_encode(pa.chunked_array([mine, theirs])).combine_chunks().indices, -1
    )
    every = numbers.to_numpy().astype(np.int64)
    return every[: len(mine)], every[len(mine) :]


def _sequence_probes(plan: IndexPlan, box: Box, has_times: bool) -> tuple[Int64s | None, Int64s]:
    """Sort the probes as the index is sorted, so that neighbouring probes read the same cache lines.

    Many probes are cut into stretches with similar windows, and each stretch is sorted. Return the order, or
    None if probes keep theirs, and the place where each stretch begins, followed by the number of probes.
    """
    n, ranges = box.n_probes, plan.access.ranges
    cuts = np.array([0, n])
    if box.group is not None:
        keys = box.group
    elif ranges:
        keys = np.ascontiguousarray(box.spans[ranges[0]].low)
    else:
        return None, cuts
    # Probes of one cell are sorted by its suffix, so that one finds its rows near those of the probe before.
    second = box.spans[ranges[1]].low if len(ranges) > 1 and box.group is None else None
    order = np.arange(n)
    n_stretches = _count_stretches(box.spans[TIME_COLUMN]) if has_times else 1
    if n_stretches > 1:
        number = _cut_evenly(box.spans[TIME_COLUMN].low, n_stretches)
        order = np.argsort(number, kind="stable")
        cuts = np.unique(np.searchsorted(number[order], np.arange(n_stretches + 1)))
    for first, last in pairwise(cuts):
        part = order[first:last]
        part = part[sort_keys(keys[part], is_rough=True)]
        if second is not None:
            part = part[sort_neighbours(second[part], max(FEWEST, len(part) // CELLS))]
        order[first:last] = part
    return order, cuts


def _count_stretches(times: Span) -> int:
    """Count the stretches into which windows fall if those of a stretch are about the same.

    A few windows that are far from all others, as those of wrong times are, make no stretches.

    >>> first = np.arange(4 * STRETCH)
    >>> [_count_stretches(Span(first, first + length)) for length in (1_000, 1_000_000)]
    [4, 1]
    >>> first[0] = -(10**15)
    >>> _count_stretches(Span(first, first + 1_000_000))
    1
    """
    most = len(times.low) // STRETCH
    if most < 2:
        return 1
    low, high = (one[:: max(1, STRETCH // SAMPLES)].astype(np.float64) for one in times)
    length = max(1.0, float(np.median(high - low)))
    apart = max(float(np.ptp(np.quantile(ends, FAR))) for ends in (low, high))
    return max(1, min(most, math.ceil(apart / length / UNLIKE)))


def _cut_evenly(values: Int64s, n: int) -> npt.NDArray[np.uint16]:
    """Number the values from 0 to n - 1 in ascending order, so that about as many have each number.

    >>> _cut_evenly(np.array([30, 10, 40, 20]), 2).tolist()
    [1, 0, 1, 0]
    """
    sample = np.sort(values[:: max(1, len(values) // (SAMPLES * n))])
    edges = sample[[len(sample) * k // n for k in range(1, n)]]
    return np.searchsorted(edges, values, side="right").astype(np.uint16)
