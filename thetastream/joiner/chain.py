"""Chained in-memory index (BiStream 3.3): subindexes by archive period, dropped whole.

Stored tuples of one side lie in segments; each belongs to one archive period of event time. An
epoch appends a segment to each period it touches; small segments of a period are merged in tiers,
so a period holds O(log epochs) of them and an archived one a single segment.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from thetastream.blocks import concat
from thetastream.condition import TIME, Dimension
from thetastream.joiner.box import Box, Plan, box, row_column
from thetastream.joiner.run import build, search
from thetastream.joiner.segment import SegmentMeta, SegmentStore, describe
from thetastream.keys import Int64s
from thetastream.types import Side

FAN_IN = 8
"""Segments of one tier that are merged into one of the next."""
MERGED_ROWS = 1 << 20
MERGED_BYTES = 1 << 27
"""Larger segments are left alone: merging one would cost more than a probe of it saves, and ``FAN_IN`` of
them stay below Arrow's 2 GiB."""
SHARED_ROWS = 1 << 16
SHARED_PERIODS = 5
"""Tuples and archive periods that an epoch's tuples may share one segment over."""
MIN_PAIRS_AT_ONCE = 1 << 10
PAIRS_AT_ONCE = 1 << 17
"""Pairs emitted in one piece: fewer when tuples are wide."""
BYTES_AT_ONCE = 1 << 25


Candidates = tuple[Int64s, pa.RecordBatch, Int64s, int]
"""Positions among the probes, stored payload, positions in it; how many stored tuples were looked at."""


@dataclass(frozen=True)
class ChainSpec:
    """What is fixed of a stream's stored tuples; picklable. Event times in microseconds."""

    stream: int
    plan: Plan
    """How they are indexed, and checked unless a probe says otherwise."""
    archive_period_us: int | None
    """Event time of one subindex; None keeps everything in one."""
    lifetime_us: int | None
    """How long after its event time a tuple may still find a partner; None: for ever."""


class ChainedIndex:
    """Stored tuples of one stream at one unit.

    Parameters
    ----------
    spec : ChainSpec
    segments : list of SegmentMeta
        From the manifest.
    store : SegmentStore
        Where runs live.
    """

    def __init__(self, spec: ChainSpec, segments: list[SegmentMeta], store: SegmentStore) -> None:
        self._spec = spec
        self._plan = spec.plan
        self.segments = segments
        self._store = store
        self._period_us = spec.archive_period_us

    def insert(self, payload: pa.RecordBatch, rows: Int64s) -> None:
        """Store tuples in new segments by archive period, then merge tiers."""
        if not len(rows):
            return
        if self._period_us is None:
            self._append(0, payload, rows)
        else:
            periods = rows[:, 0] // self._period_us
            for first, last in spans(periods):
                inside = np.flatnonzero((periods >= first) & (periods <= last))
                whole = len(inside) == len(rows)
                part = payload if whole else payload.take(inside)
                self._append(last, part, rows if whole else rows[inside])
        self._merge()

    def _append(self, period: int, payload: pa.RecordBatch, rows: Int64s) -> None:
        run = build(self._plan, payload, rows)
        meta = describe(self._spec.stream, period, run)
        self.segments.append(replace(meta, durable_bytes=self._store.put(meta, run)))

    def _merge(self) -> None:
        """Merge ``FAN_IN`` segments of one period and one tier (rows within a factor FAN_IN)."""

        def tier(meta: SegmentMeta) -> tuple[int, int]:
            return meta.period, (meta.n_rows.bit_length() - 1) // (FAN_IN.bit_length() - 1)

        ripe = True
        while ripe:
            ripe = False
            for (period, _), group in groupby(sorted(self.segments, key=tier), key=tier):
                small = [meta for meta in group if _is_mergeable([meta])]
                if len(small) >= FAN_IN:
                    self._replace(period, small)
                    ripe = True

    def archive(self, watermark_us: int | None) -> None:
        """Make one segment of each period that the watermark has passed: no tuple can join it now."""
        if watermark_us is None or self._period_us is None:
            return

        def period(meta: SegmentMeta) -> int:
            return meta.period

        closed = [m for m in self.segments if (m.period + 1) * self._period_us <= watermark_us]
        for number, group in groupby(sorted(closed, key=period), key=period):
            parts = list(group)
            if len(parts) > 1 and _is_mergeable(parts):
                self._replace(number, parts)

    def _replace(self, period: int, old: list[SegmentMeta]) -> None:
        runs = [self._store.get(meta) for meta in old]
        payload = concat([run.payload for run in runs])
        self._append(period, payload, np.concatenate([run.rows for run in runs]))
        for meta in old:
            self.segments.remove(meta)
            self._store.drop(meta)

    def expire(self, watermark_us: int | None) -> int:
        """Drop segments no future tuple can join; return how many tuples they had."""
        dead = self.take_expired(watermark_us)
        for meta in dead:
            self._store.drop(meta)
        return sum(meta.n_rows for meta in dead)

    # Segments that go elsewhere

    def take_expired(self, watermark_us: int | None) -> list[SegmentMeta]:
        """Segments no future tuple can join: watermark >= max(t) + how long t stays joinable.

        They are still in the store, and the caller's.
        """
        keep = self._spec.lifetime_us
        if watermark_us is None or keep is None:
            return []
        dead = [meta for meta in self.segments if watermark_us >= meta.max_ts + keep]
        self.segments = [meta for meta in self.segments if meta not in dead]
        return dead

    def take(self, n: int) -> list[SegmentMeta]:
        """Segments with n tuples together, or all, from the smallest on; the last is cut if need be.

        They are still in the store, and the caller's.
        """
        taken = []
        for meta in sorted(self.segments, key=lambda meta: meta.n_rows):
            if not n:
                break
            self.segments.remove(meta)
            if meta.n_rows > n:
                run = self._store.get(meta)
                self._append(meta.period, run.payload.slice(n), run.rows[n:])
                self._append(meta.period, run.payload.slice(0, n), run.rows[:n])
                self._store.drop(meta)
                meta = self.segments.pop()
            n -= meta.n_rows
            taken.append(meta)
        return taken

    def adopt(self, segments: list[SegmentMeta]) -> None:
        """Take over segments of tuples that are indexed as these are."""
        self.segments += [replace(meta, stream=self._spec.stream) for meta in segments]
        self._merge()

    def probe(self, probes: Int64s, width_of_probe: float, plan: Plan | None = None) -> Iterator[Candidates]:
        """Find partners for probing key rows, by a plan of the same index or a scan."""
        if not len(probes) or not self.segments:
            return
        plan = plan or self._plan
        query = box(plan, probes)
        order = _visiting_order(plan, query)
        if order is not None:
            query = query.reordered(order)
        times = query.spans.get(row_column(TIME)) if plan.condition.window is not None else None
        for meta in self.segments:
            # 1. Only probes whose window touches the segment; no window check if it lies inside all.
            chosen, skip = None, frozenset[int]()
            if times is not None:
                touches = (times.low <= meta.max_ts) & (times.high >= meta.min_ts)
                if not touches.any():
                    continue
                if not touches.all():
                    chosen = np.flatnonzero(touches)
                low = times.low if chosen is None else times.low[chosen]
                high = times.high if chosen is None else times.high[chosen]
                if low.max() <= meta.min_ts and high.min() >= meta.max_ts:
                    skip = frozenset({row_column(TIME)})
            # 2. Walk it.
            run = self._store.get(meta)
            wide = width_of_probe + run.payload.nbytes / run.n_rows
            capacity = max(MIN_PAIRS_AT_ONCE, min(PAIRS_AT_ONCE, int(BYTES_AT_ONCE / max(wide, 1))))
            for found, stored, candidates in search(plan, run, query, chosen, skip, capacity):
                yield found if order is None else order[found], run.payload, stored, candidates


def _visiting_order(plan: Plan, query: Box) -> Int64s | None:
    """Probes in the order of the index, so that neighbours touch the same cache lines."""
    if query.group is not None:
        return np.argsort(query.group)
    if plan.access.ranges:
        return np.argsort(query.spans[plan.access.ranges[0]].low)
    return None


def _is_mergeable(segments: list[SegmentMeta]) -> bool:
    n_rows, nbytes = sum(meta.n_rows for meta in segments), sum(meta.nbytes for meta in segments)
    return n_rows <= MERGED_ROWS and nbytes <= MERGED_BYTES


def spans(periods: Int64s) -> list[tuple[int, int]]:
    """Cut an epoch's archive periods into inclusive spans, one segment each.

    A period with many tuples stands alone; neighbours with few share a segment, because each
    segment costs every probe a search. The segment expires with its last period.

    >>> spans(np.array([3, 3, 4, 9]))
    [(3, 4), (9, 9)]
    """
    found: list[tuple[int, int]] = []
    held = 0
    numbers, counts = np.unique(periods, return_counts=True)
    for period, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        joins = found and held + count <= SHARED_ROWS and period - found[-1][0] < SHARED_PERIODS
        held = held + count if joins else count
        start = found.pop()[0] if joins else period
        found.append((start, period))
    return found


def joinable_us(window: Dimension | None, side: Side) -> int | None:
    """How long after its event time a stored tuple of ``side`` may still find a partner, or None.

    low <= left.ts - right.ts <= high: a left tuple waits for right ones up to t - low, a right
    tuple for left ones up to t + high. In a count window times are numbers of tuples.
    """
    if window is None:
        return None
    bound = window.low if window.point is side else window.high
    if bound is None:
        return None
    delta = int(bound.delta)
    return -delta if window.point is side else delta
