"""The chained in-memory index (BiStream, section 3.3): a subindex per archive period, which expires as a
whole.

The stored tuples of one side lie in segments. A segment belongs to the archive period of its latest event
time. An epoch appends a few segments. Small segments of a period are merged in tiers, so a period has O(log
epochs) segments. An archived period has one segment. Segments are written to durable storage at the end of
the epoch, so one that is merged or expires before that is never written.

*Changes.* When segments are merged, equal tuples of opposite sign cancel each other
(``thetastream.core.cancellation``). No probe notices this: each probe has its place in the global order, and
later probes meet both tuples or none of them. Large segments are not merged. Therefore, if tuples never
expire, a merged segment with many deletes is compared with all other segments.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.blocks import RowFacts, concat
from thetastream.core.cancellation import (
    Lookalikes,
    cancel,
    find_counterparts,
    find_left,
    list_columns,
    read_signs,
)
from thetastream.core.columns import TUPLE
from thetastream.core.equal_rows import number_rows
from thetastream.core.how import select_nearest
from thetastream.core.keys import Int64s
from thetastream.core.versions import are_gone, select_last
from thetastream.engine.store.box import IndexPlan, StoredStream
from thetastream.engine.store.period_spans import cut_periods
from thetastream.engine.store.probing import Candidates, probe_segments
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta, SegmentStore, describe

FAN_IN = 8
"""The number of segments of one tier that are merged into one segment of the next tier."""
MERGED_ROWS = 1 << 20
MERGED_BYTES = 1 << 27
"""Larger segments are not merged, because a merge would cost more than the faster probes save. With this
limit, ``FAN_IN`` segments together stay below Arrow's limit of 2 GiB."""
FEWEST_DELETES, SHARE_OF_DELETES = 1 << 9, 64
"""A merged segment is compared with all others if it has more deletes than this number, and than this share
(1 / 64) of all stored tuples. A tier has fewer than ``FAN_IN`` segments, so at most about an eighth of the
stored tuples are deletes whose inserts are stored too."""
MANY_DELETES = 4
"""If at least this share (1 / 4) of the stored tuples are deletes, the matches of a probe are netted. With
fewer, the comparison would cost more than the few pairs that come and go at once."""


class ChainedIndex:
    """The stored tuples of one stream at one unit.

    Parameters
    ----------
    spec : StoredStream
    segments : list of SegmentMeta
        The segments that the manifest lists.
    store : SegmentStore
        The store that holds the runs.
    """

    def __init__(self, spec: StoredStream, segments: list[SegmentMeta], store: SegmentStore) -> None:
        self._spec = spec
        self._plan = spec.plan
        self._store = store
        self._period_us = spec.archive_period_us
        self._has_deletes = spec.plan.condition.sides[spec.plan.stored].has_deletes
        self._cancelled: list[pa.RecordBatch] = []
        self.segments = [self._renumber(meta) for meta in segments]

    def _renumber(self, meta: SegmentMeta) -> SegmentMeta:
        """Give a segment the number of its archive period, which may have another length since a restart."""
        period = 0 if self._period_us is None else meta.max_ts // self._period_us
        return meta if period == meta.period else replace(meta, period=period)

    def insert(self, payload: pa.RecordBatch, rows: Int64s, places: Int64s | None = None) -> None:
        """Store tuples in new segments, and merge tiers that are full.

        ``rows`` are their key rows, and ``places`` their positions in ``payload``; by default they are all of
        it.
        """
        if not len(rows):
            return
        periods = None if self._period_us is None else rows[:, 0] // self._period_us
        spans = [(0, 0)] if periods is None else cut_periods(periods)
        if periods is None or len(spans) == 1:
            self._append(spans[0][1], payload, rows, places)
        else:
            number = np.searchsorted([last for _, last in spans], periods).astype(np.uint16)
            order = np.argsort(number, kind="stable")
            ends = np.searchsorted(number[order], np.arange(len(spans)), side="right")
            for (_, last), part in zip(spans, np.split(order, ends), strict=False):
                mine = part if places is None else places[part]
                self._append(last, payload, rows.take(part, axis=0), mine)
        self._merge()

    def _append(
        self, period: int, payload: pa.RecordBatch, rows: Int64s, places: Int64s | None = None
    ) -> None:
        run = build(self._plan, payload, rows, places)
        meta = describe(self._spec.stream, period, run)
        self._store.put(meta, run)
        self.segments.append(meta)

    def write(self) -> None:
        """Write new segments to durable storage. Call this once, at the end of the epoch."""
        self.segments = [
            meta if meta.durable_bytes else replace(meta, durable_bytes=self._store.write(meta))
            for meta in self.segments
        ]

    def _merge(self) -> None:
        """Merge ``FAN_IN`` segments of one period and one tier.

        The row counts of the segments in a tier differ by less than a factor of ``FAN_IN``.
        """

        def tier(meta: SegmentMeta) -> tuple[int, int]:
            return meta.period, (meta.n_rows.bit_length() - 1) // (FAN_IN.bit_length() - 1)

        merged: list[SegmentMeta] = []
        ripe = True
        while ripe:
            ripe = False
            for (period, _), group in groupby(sorted(self.segments, key=tier), key=tier):
                small = [meta for meta in group if _is_mergeable([meta])]
                if len(small) >= FAN_IN:
                    merged += self._replace(period, small)
                    ripe = True
        if self._has_deletes and self._period_us is None:
            for meta in merged:
                if meta in self.segments:
                    self._cancel_with_others(meta)

    def archive(self, watermark_us: int | None) -> None:
        """Merge each period that the watermark has passed into one segment, because no tuple can be added to
        it."""
        if watermark_us is None or self._period_us is None:
            return
        closed = [m for m in self.segments if (m.period + 1) * self._period_us <= watermark_us]
        for period, group in groupby(sorted(closed, key=attrgetter("period")), key=attrgetter("period")):
            parts = list(group)
            if len(parts) > 1 and _is_mergeable(parts):
                self._replace(period, parts)

    def _replace(self, period: int, old: list[SegmentMeta]) -> list[SegmentMeta]:
        """Replace segments by one with their tuples, and return it, unless all tuples cancel each other."""
        runs = [self._store.get(meta) for meta in old]
        payload, rows = concat([run.payload for run in runs]), np.concatenate([run.rows for run in runs])
        left = find_left(payload)
        if left is not None:
            self._note_cancelled(payload, left)
            payload, rows = payload.take(left), rows.take(left, axis=0)
        if len(rows):
            self._append(period, payload, rows)
        for meta in old:
            self.segments.remove(meta)
            self._store.drop(meta)
        return self.segments[-1:] if len(rows) else []

    def _cancel_with_others(self, merged: SegmentMeta) -> None:
        """Cancel the deletes of a merged segment and equal inserts of other segments, if they are many."""
        payload = self._store.get(merged).payload
        signs = read_signs(payload)
        assert signs is not None
        deletes = np.flatnonzero(signs < 0)
        n_stored = sum(meta.n_rows for meta in self.segments)
        if len(deletes) <= max(FEWEST_DELETES, n_stored // SHARE_OF_DELETES):
            return
        # 1. Gather the deletes, and the tuples that may be equal to them.
        places, gathered = [(merged, deletes)], [payload.take(deletes)]
        for meta in self.segments:
            if meta is not merged:
                other = self._store.get(meta).payload
                found = find_counterparts(other, gathered[0])
                if len(found):
                    places.append((meta, found))
                    gathered.append(other.take(found))
        # 2. Cancel them, and write the segments that lose tuples anew.
        together = concat(gathered)
        left = find_left(together)
        if left is None:
            return
        self._note_cancelled(together, left)
        is_cancelled = np.ones(sum(map(len, gathered)), dtype=np.bool_)
        is_cancelled[left] = False
        ends = np.cumsum([len(rows) for _, rows in places])
        for (meta, rows), mine in zip(places, np.split(is_cancelled, ends), strict=False):
            is_kept = np.ones(meta.n_rows, dtype=np.bool_)
            is_kept[rows[mine]] = False
            self._keep(meta, self._store.get(meta), is_kept)

    def _note_cancelled(self, tuples: pa.RecordBatch, left: Int64s) -> None:
        """Note the numbered tuples that cancel each other: all but those at the positions ``left``."""
        if TUPLE in tuples.schema.names:
            self._cancelled.append(tuples.take(np.delete(np.arange(len(tuples)), left)))

    def take_cancelled(self) -> list[pa.RecordBatch]:
        """Take the payload of the numbered tuples that have cancelled each other since the last call."""
        cancelled, self._cancelled = self._cancelled, []
        return cancelled

    def expire(self, watermark_us: int | None) -> int:
        """Drop the segments that no future tuple can join; return the number of tuples in them."""
        dead = self.take_expired(watermark_us)
        for meta in dead:
            self._store.drop(meta)
        return sum(meta.n_rows for meta in dead)

    def find_end(self) -> int | None:
        """Find the watermark at which all tuples that are stored now have expired; None if there is none."""
        keep = self._spec.lifetime_us
        return None if keep is None else max((meta.max_ts + keep for meta in self.segments), default=None)

    def clear(self) -> int:
        """Drop all tuples; return their number."""
        n_dropped = sum(meta.n_rows for meta in self.segments)
        for meta in self.segments:
            self._store.drop(meta)
        self.segments = []
        return n_dropped

    def retain(self, choose: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]) -> int:
        """Drop the tuples that ``choose`` does not select from a payload; return their number."""
        n_dropped = 0
        for meta in list(self.segments):
            run = self._store.get(meta)
            n_dropped += self._keep(meta, run, choose(run.payload))
        return n_dropped

    def drop_replaced(
        self, keys: Sequence[int], same: Sequence[str], until_us: int, k: int, has_versions: bool = False
    ) -> int:
        """Drop the tuples at or before ``until_us`` of which ``k`` later ones are there too, with equal keys.

        Parameters
        ----------
        keys : sequence of int
            The columns of the key rows that must be equal.
        same : sequence of str
            The columns of the payload that must be equal.
        until_us : int
            An event time in microseconds.
        k : int
            How many of the latest tuples of a key are kept, with those that have the time of the last one.
        has_versions : bool
            Whether tuples are versions. Then the last one of a time is kept, and none of a key that has no
            row any more.

        Returns
        -------
        int
            The number of dropped tuples.
        """
        runs = [(meta, self._store.get(meta)) for meta in self.segments]
        rows = np.concatenate([run.rows for _, run in runs])
        ends = np.cumsum([run.n_rows for _, run in runs])
        columns = [pa.array(np.zeros(len(rows), dtype=np.int64)), *(pa.array(rows[:, key]) for key in keys)]
        payload = concat([run.payload.select(same) for _, run in runs]) if same else None
        groups = number_rows([*columns, *([] if payload is None else payload.columns)])
        old = np.flatnonzero(rows[:, 0] <= until_us)
        is_kept = np.ones(len(rows), dtype=np.bool_)
        is_kept[old] = False
        latest = old[select_nearest(groups[old], -rows[old, 0], k)]
        if has_versions:
            latest = np.sort(latest)
            pieces = np.split(latest, np.searchsorted(latest, ends[:-1]))
            starts = ends - [run.n_rows for _, run in runs]
            versions = concat(
                [
                    run.payload.take(pa.array(piece - start))
                    for (_, run), piece, start in zip(runs, pieces, starts, strict=True)
                ]
            )
            names = self._plan.condition.sides[self._plan.stored].columns
            last = select_last(groups[latest], versions, names)
            latest = latest[last[~are_gone(versions)[last]]]
        is_kept[latest] = True
        parts = np.split(is_kept, ends[:-1])
        return sum(self._keep(meta, run, mine) for (meta, run), mine in zip(runs, parts, strict=True))

    def _keep(self, meta: SegmentMeta, run: Run, is_kept: npt.NDArray[np.bool_]) -> int:
        """Keep some tuples of a segment, and drop the others; return the number of those."""
        kept = np.flatnonzero(is_kept)
        if len(kept) < run.n_rows:
            if len(kept):
                self._append(meta.period, run.payload.take(kept), run.rows.take(kept, axis=0))
            self.segments.remove(meta)
            self._store.drop(meta)
        return run.n_rows - len(kept)

    def runs(self) -> Iterator[tuple[SegmentMeta, Run]]:
        """Yield the segments with their runs."""
        for meta in self.segments:
            yield meta, self._store.get(meta)

    def find_due(self, after_us: int | None, horizon_us: int) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """Yield payload and times of the tuples whose event times are in the interval (after, horizon]."""
        for run, is_due in self._find_due_runs(after_us, horizon_us):
            payload = run.payload if is_due.all() else run.payload.take(np.flatnonzero(is_due))
            yield payload, run.rows[is_due, 0]

    def _find_due_runs(
        self, after_us: int | None, horizon_us: int
    ) -> Iterator[tuple[Run, npt.NDArray[np.bool_]]]:
        """Yield runs, and which of their tuples have an event time in the interval (after, horizon]."""
        for meta in self.segments:
            if meta.min_ts > horizon_us or (after_us is not None and meta.max_ts <= after_us):
                continue
            run = self._store.get(meta)
            times = run.rows[:, 0]
            is_due = times <= horizon_us
            if after_us is not None:
                is_due &= times > after_us
            if is_due.any():
                yield run, is_due

    def gather_deletes(self, columns: Sequence[str]) -> pa.RecordBatch | None:
        """Gather these columns of the stored deletes; None if they are few among the stored tuples."""
        if not self._has_deletes:
            return None
        payloads = [self._store.get(meta).payload for meta in self.segments]
        deletes = [np.flatnonzero(read_signs(payload) < 0) for payload in payloads]  # type: ignore[operator]
        if MANY_DELETES * sum(map(len, deletes)) < sum(map(len, payloads)) or not payloads:
            return None
        return concat(
            [payload.select(columns).take(rows) for payload, rows in zip(payloads, deletes, strict=True)]
        )

    def find_unmatched(self, deletes: pa.RecordBatch) -> pa.RecordBatch | None:
        """Find the stored deletes that look like these and have no insert; None if there are none."""
        lookalikes, found = Lookalikes(list_columns(deletes)), []
        for meta in self.segments:
            payload = self._store.get(meta).payload
            rows = lookalikes.find(list_columns(payload), np.arange(len(payload)))
            if len(rows):
                found.append(payload.take(rows))
        return _find_deletes(found)

    def count_unmatched(self, after_us: int | None, horizon_us: int) -> int:
        """Count the deletes without an insert whose event times are in the interval (after, horizon]."""
        found, has_deletes = [], False
        for run, is_due in self._find_due_runs(after_us, horizon_us):
            found.append((run, is_due))
            has_deletes = has_deletes or bool((read_signs(run.payload)[is_due] < 0).any())  # type: ignore[index]
        if not has_deletes:
            return 0
        unmatched = _find_deletes([run.payload.take(np.flatnonzero(is_due)) for run, is_due in found])
        return 0 if unmatched is None else len(unmatched)

    # Segments that move to another index or unit

    def take_expired(self, watermark_us: int | None) -> list[SegmentMeta]:
        """Remove the segments that no future tuple can join: watermark >= max(t) + lifetime.

        The segments are still in the store, and the caller becomes their owner.
        """
        keep = self._spec.lifetime_us
        if watermark_us is None or keep is None:
            return []
        dead = [meta for meta in self.segments if watermark_us >= meta.max_ts + keep]
        self.segments = [meta for meta in self.segments if meta not in dead]
        return dead

    def take(self, n: int) -> list[SegmentMeta]:
        """Remove segments with n tuples in total, or all segments if they have fewer tuples.

        The smallest segments are taken first, and the last one is cut if it is too large. The segments are
        still in the store, and the caller becomes their owner.
        """
        taken = []
        for meta in sorted(self.segments, key=lambda meta: meta.n_rows):
            if not n:
                break
            if meta.n_rows > n:
                meta = self._cut(meta, n)
            self.segments.remove(meta)
            n -= meta.n_rows
            taken.append(meta)
        return taken

    def remove_part(self, n_rows: int, nbytes: int) -> pa.RecordBatch | None:
        """Remove the smallest segments; return their tuples, or None if the index is empty.

        They have at most ``n_rows`` tuples and ``nbytes`` bytes, or are one tuple. If the smallest segment is
        too large, it is cut into halves until the first one fits. Then each later call finds a segment that
        fits, or cuts a smaller one, so the whole index is written again a few times at most.
        """
        taken: list[SegmentMeta] = []
        for meta in sorted(self.segments, key=lambda meta: meta.n_rows):
            while not taken and meta.n_rows > 1 and (meta.n_rows > n_rows or meta.nbytes > nbytes):
                meta = self._cut(meta, meta.n_rows // 2)
            if taken and (meta.n_rows > n_rows or meta.nbytes > nbytes):
                break
            self.segments.remove(meta)
            n_rows -= meta.n_rows
            nbytes -= meta.nbytes
            taken.append(meta)
        payloads = [self._store.get(meta).payload for meta in taken]
        for meta in taken:
            self._store.drop(meta)
        return concat(payloads) if payloads else None

    def _cut(self, meta: SegmentMeta, n: int) -> SegmentMeta:
        """Cut a segment into two; return the one with its first n tuples."""
        run = self._store.get(meta)
        self._append(meta.period, run.payload.slice(n), run.rows[n:])
        self._append(meta.period, run.payload.slice(0, n), run.rows[:n])
        self.segments.remove(meta)
        self._store.drop(meta)
        return self.segments[-1]

    def adopt(self, segments: list[SegmentMeta]) -> None:
        """Take over segments of tuples that have the same index plan."""
        self.segments += [replace(meta, stream=self._spec.stream) for meta in segments]
        self._merge()

    # Probes

    def probe(
        self,
        probes: Int64s,
        probe_facts: RowFacts,
        plan: IndexPlan | None = None,
        *,
        places: Int64s | None = None,
        has_one: bool = False,
    ) -> Iterator[Candidates]:
        """Find partners for probing key rows. ``plan`` must use the same index, its buckets, or a scan.

        ``places`` are the positions of the probes among the tuples of ``probe_facts``; by default they are
        all of them. If ``has_one``, one partner of a probe is enough.
        """
        plan = plan or self._plan
        yield from probe_segments(self.segments, self._store, plan, probes, probe_facts, has_one, places)


def _find_deletes(tuples: list[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the deletes that are left when tuples have cancelled each other; None if there are none."""
    if not tuples:
        return None
    left = cancel(concat(tuples))
    deletes = np.flatnonzero(read_signs(left) < 0)  # type: ignore[operator]
    return left.take(deletes) if len(deletes) else None


def _is_mergeable(segments: list[SegmentMeta]) -> bool:
    n_rows, nbytes = sum(meta.n_rows for meta in segments), sum(meta.nbytes for meta in segments)
    return n_rows <= MERGED_ROWS and nbytes <= MERGED_BYTES
