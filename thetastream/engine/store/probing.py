"""Probes segments: finds the stored tuples that lie in the boxes of probing tuples, piece by piece."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import RowFacts, cut_pairs
from thetastream.core.condition import TIME
from thetastream.core.keys import HIGHEST, Int64s
from thetastream.core.row_limit import read_thresholds
from thetastream.core.sides import Side
from thetastream.engine.store.box import Box, IndexPlan, build_box, locate_key_column
from thetastream.engine.store.run import Run, search
from thetastream.engine.store.segment import SegmentMeta, SegmentStore
from thetastream.index.base import MeasuredSearch, RankedSearch

MIN_PAIRS_AT_ONCE = 1 << 10
PAIRS_AT_ONCE = 1 << 17
"""The smallest and the largest number of pairs in one piece of the output. Pieces of wide tuples have fewer
pairs."""
BYTES_AT_ONCE = 1 << 25


class Candidates(NamedTuple):
    """Some of the pairs that an index has found."""

    probes: Int64s
    """Positions among the probes."""
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
) -> Iterator[Candidates]:
    """Find partners for probing key rows among the tuples of these segments.

    ``probe_facts`` are those of the probing tuples. A piece has ``BYTES_AT_ONCE`` bytes at most, or one
    pair. If ``has_one``, a probe is done as soon as it has one partner.
    """
    if not len(probes) or not segments:
        return
    is_open = np.ones(len(probes), dtype=np.bool_)
    query = build_box(plan, probes)
    order = _sequence_probes(plan, query)
    if order is not None:
        query = query.reorder(order)
    best = _open_heaps(plan, len(probes))
    times = query.spans.get(locate_key_column(TIME)) if plan.condition.window is not None else None
    for meta in segments:
        # 1. Choose the probes whose window touches the segment. Skip the window check if the segment lies
        #    inside all windows.
        chosen, skip, touches = None, frozenset[int](), is_open
        if times is not None:
            touches = is_open & (times.low <= meta.max_ts) & (times.high >= meta.min_ts)
        if not touches.any():
            continue
        if not touches.all():
            chosen = np.flatnonzero(touches)
        if times is not None:
            low = times.low if chosen is None else times.low[chosen]
            high = times.high if chosen is None else times.high[chosen]
            if low.max() <= meta.min_ts and high.min() >= meta.max_ts:
                skip = frozenset({locate_key_column(TIME)})
        run = store.get(meta)
        if times is None and len(segments) > 1:
            # Runs without a window may be cut by a key, as those of a large table are.
            touches = touches & _find_touching(plan, run, query)
            if not touches.any():
                continue
            chosen = None if touches.all() else np.flatnonzero(touches)
        # 2. Walk the segment.
        wide = probe_facts.mean + run.facts.mean
        widest = probe_facts.widest + run.facts.widest
        capacity = max(MIN_PAIRS_AT_ONCE, min(PAIRS_AT_ONCE, int(BYTES_AT_ONCE / max(wide, 1))))
        most = 1 if has_one else HIGHEST
        measured = ranked = None
        if plan.index.shape.layout.uses_measures:
            places = np.arange(len(probes)) if order is None else order
            places = places if chosen is None else places[chosen]
            measured = _prepare_measure(plan, run, probe_facts, places)
            ranked = None if measured else _prepare_ranking(plan, run, probe_facts, places, best)
        pieces = search(plan, run, query, chosen, skip, capacity, most, measured, ranked)
        for found, stored, n_compared, is_proved in pieces:
            if has_one:
                is_open[found] = False
            found = found if order is None else order[found]
            if widest * len(found) <= BYTES_AT_ONCE:
                yield Candidates(found, run.payload, stored, n_compared, is_proved)
                continue
            sizes = probe_facts.each[found] + run.facts.each[stored]
            for part in cut_pairs(sizes, BYTES_AT_ONCE):
                compared = n_compared if part.start == 0 else 0
                yield Candidates(found[part], run.payload, stored[part], compared, is_proved)


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


def _sequence_probes(plan: IndexPlan, query: Box) -> Int64s | None:
    """Sort the probes as the index is sorted, so that neighbouring probes read the same cache lines."""
    if query.group is not None:
        return np.argsort(query.group)
    if plan.access.ranges:
        return np.argsort(query.spans[plan.access.ranges[0]].low)
    return None
