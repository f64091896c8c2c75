"""One unit of a join that finds the nearest partners of each left tuple.

    { (l, r) : l, r match, the rank of r among the partners of l by the value of the pair is at most k }

The unit keeps the best partners of each undecided tuple (``best_partners``). Pairs leave it when their left
tuple is decided. So no change can reach them any more, and left tuples may be deleted until then. If right
tuples may be deleted, the unit keeps all partners, and ranks those that are left when the tuple is decided.

*Search.* The nearest partner is one of very many if the window is long. If partners can be searched in the
order of their values (``thetastream.engine.store.ranked_run``), left tuples search and right tuples are
searched, wherever a sample says that tuples have many partners:

    new left tuples        search the stored right tuples, of which those of the epoch are part
    stored left tuples     search the new right tuples

*Versions.* In an as-of join, a right tuple is a version of its keys, and the latest one before a left tuple
is its partner. Later left tuples are after the watermark w. So of the versions of a key at or before w, they
need the latest k only, and the unit drops the others when they are many. If the stream says which versions
count (``SideSpec.version_columns``), a tuple has one partner at most, and the last version of a key may say
that the key has no row any more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches, concat
from thetastream.core.cancellation import cancel
from thetastream.core.columns import RANKED, SIGN, TUPLE
from thetastream.core.condition import TIME
from thetastream.core.how import How, PairRanking
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.answers.best_partners import (
    BestPartners,
    BestState,
    mark_partners,
    pair_with_best,
)
from thetastream.engine.answers.unit import (
    FORGET_ROWS,
    AnsweringUnit,
    AnswersState,
    read_sign_column,
)
from thetastream.engine.clock import Clock
from thetastream.engine.store.box import build_box, locate_key_column
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.ranked_run import SEARCHED, RankedRun, can_search, cost_more
from thetastream.engine.store.segment import MemoryStore, SegmentStore
from thetastream.engine.two_stream.query import Arrivals, Tuples
from thetastream.engine.two_stream.spec import TwoStreamSpec


@dataclass
class NearestState:
    """The state of a unit: the state of its answers, and the best partners."""

    answers: AnswersState = field(default_factory=AnswersState)
    best: BestState = field(default_factory=BestState)


@dataclass
class VersionsState(NearestState):
    """The state of a unit that drops replaced tuples."""

    n_kept: int = 0
    """The number of right tuples when those that are replaced were dropped for the last time."""


class NearestUnit(AnsweringUnit):
    """One unit of a join that finds the nearest partners of each left tuple."""

    def __init__(
        self,
        join: TwoStreamSpec,
        how: How,
        ranking: PairRanking,
        slot: int,
        state: NearestState,
        store: SegmentStore,
        drops_replaced: bool = False,
    ) -> None:
        super().__init__(join, how, slot, state.answers, store)
        self._ranking = ranking
        self._drops_replaced = drops_replaced
        self._n_kept = state.n_kept if isinstance(state, VersionsState) else 0
        plan = self._spec.plans[Side.RIGHT]
        can_order = self._spec.counts is None and not self._signed[Side.RIGHT] and can_search(plan)
        self._ordered = ranking.ordered if can_order else None
        self._best = BestPartners(
            ranking.k,
            state.best,
            store,
            self._signed[Side.RIGHT],
            self._spec.condition.sides[Side.RIGHT],
        )

    def _counts_partners(self, side: Side) -> bool:
        return False  # the partners are kept

    @property
    def state(self) -> Any:
        """The current state."""
        if self._drops_replaced:
            return VersionsState(super().state, self._best.state, self._n_kept)
        return NearestState(super().state, self._best.state)

    def _join_in_parts(self, left: Arrivals, right: Arrivals) -> Iterator[Matches]:
        if self._ordered is None:
            yield from super()._join_in_parts(left, right)
            return
        if right.probing is not None:
            yield from self._meet_stored(right.probing)
        self._store(Side.RIGHT, right.storing)
        if left.probing is not None:
            if self._cost_more(Side.LEFT, left.probing, SEARCHED * len(left.probing.rows)):
                self.counters.probed += len(left.probing.rows)
                yield from self._search(left.probing, self._indexes[Side.RIGHT])
            else:
                yield from self._probe(Side.LEFT, left.probing)
        self._store(Side.LEFT, left.storing)

    def _meet_stored(self, right: Tuples) -> Iterator[Matches]:
        """Find the pairs of new right tuples and stored left ones."""
        stored = self._indexes[Side.LEFT]
        n_searches = sum(meta.n_rows for meta in stored.segments) + len(right.rows)
        if not self._cost_more(Side.RIGHT, right, SEARCHED * n_searches):
            yield from self._probe(Side.RIGHT, right)
            return
        self.counters.probed += len(right.rows)
        fresh = ChainedIndex(self._spec.describe_stored(Side.RIGHT), [], MemoryStore())
        fresh.insert(right.facts.batch, right.rows, right.places)
        for _, run in stored.runs():
            yield from self._search(Tuples(run.facts, run.rows), fresh)

    def _cost_more(self, side: Side, tuples: Tuples, most: int) -> bool:
        """Whether ranking all stored partners of these tuples costs more than ranking ``most`` partners."""
        return cost_more(tuples.payload, tuples.rows, self._indexes[side.other].probe, most)

    def _search(self, left: Tuples, index: ChainedIndex) -> Iterator[Matches]:
        """Find the nearest partners of left tuples among the right tuples of an index."""
        plan, ranking = self._spec.plans[Side.RIGHT], self._ordered
        assert ranking is not None
        box = build_box(plan, left.rows)
        times = box.spans.get(locate_key_column(TIME)) if plan.condition.window is not None else None
        payload = left.payload
        values = payload.column(RANKED) if ranking.has_left else None
        is_hard = np.zeros(len(left.rows), dtype=np.bool_)
        found: list[tuple[Int64s, pa.RecordBatch, Int64s, Int64s]] = []
        for meta, run in index.runs():
            chosen = np.arange(len(left.rows))
            if times is not None:
                chosen = np.flatnonzero((times.low <= meta.max_ts) & (times.high >= meta.min_ts))
            if len(chosen):
                mine = None if values is None else values.take(pa.array(chosen))
                probe, stored, keys, hard = RankedRun.of(run, plan, ranking).find(box.arrange(chosen), mine)
                is_hard[chosen[hard]] = True
                self.counters.candidates += len(keys)
                found.append((chosen[probe], run.payload, stored, keys))
        for probe, partner, stored, keys in found:
            kept = ~is_hard[probe]
            self._add(payload, probe[kept], partner, stored[kept], keys[kept])
        if is_hard.any():
            rest = left.take(is_hard)
            pairs = index.probe(rest.rows, rest.facts, places=rest.places)
            yield from self._match(Side.LEFT, rest.facts.batch, pairs)

    def _add(
        self, left: pa.RecordBatch, left_rows: Int64s, right: pa.RecordBatch, right_rows: Int64s, keys: Int64s
    ) -> None:
        """Keep the best of these pairs."""
        if not len(keys):
            return
        self.counters.matched += len(keys)
        numbers = left.column(TUPLE).to_numpy()[left_rows]
        self._open[Side.LEFT].close(numbers)
        side = self._spec.condition.sides[Side.RIGHT]
        columns = [*side.columns, *[SIGN] * side.has_deletes, *side.version_columns]
        self._best.add(numbers, keys, right.select(columns), right_rows)

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Keep the best of the matches. No match leaves the unit yet."""
        for one in candidates:
            self.counters.candidates += one.n_compared
            found, stored = self._residual.keep(side, payload, one)
            mine, theirs = (payload, found), (one.payload, stored)
            (left, left_rows), (right, right_rows) = (mine, theirs) if side is Side.LEFT else (theirs, mine)
            keys = self._ranking.rank_pairs(left, left_rows, right, right_rows)
            self._add(left, left_rows, right, right_rows, keys)
        yield from ()

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Yield the decided tuples: each with its nearest partners, or without a partner."""
        self._best.merge()
        batches = [batch for batch, _ in self._take_due(side, clock)]
        if self._signed[side] and batches:
            # Equal tuples have one event time, so they are decided together.
            batches = [concat(batches)]
        for batch in batches:
            has_partner = np.zeros(batch.num_rows, dtype=np.bool_)
            left = batch.select(self._spec.condition.sides[side].columns)
            signs = read_sign_column(batch) if any(self._signed) else None
            found = mark_partners(self._best.take(batch.column(TUPLE).to_numpy()), has_partner)
            for matches in pair_with_best(left, signs, found):
                yield self._answer_matched(matches)
            alone = cancel(batch.take(np.flatnonzero(~has_partner)))
            if alone.num_rows:
                yield from self._answer_unmatched(side, alone)

    def expire(self, clock: Clock) -> None:
        """Drop what no tuple of a later epoch can join, and the versions that later ones replace."""
        super().expire(clock)
        index, condition = self._indexes[Side.RIGHT], self._spec.condition
        n_held = sum(meta.n_rows for meta in index.segments)
        if not self._drops_replaced or clock.watermark_us is None or n_held <= 2 * self._n_kept + FORGET_ROWS:
            return
        assert condition.window is not None
        assert condition.window.low is not None
        until_us = clock.watermark_us - int(condition.window.low.delta)
        keys = [locate_key_column(equality.right) for equality in condition.equalities]
        same = [right for _, right in condition.same]
        has_versions = bool(condition.sides[Side.RIGHT].version_columns)
        n_dropped = index.drop_replaced(keys, same, until_us, self._ranking.k, has_versions)
        self.counters.expired += n_dropped
        self._n_kept = n_held - n_dropped

    def _drop_cancelled(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        yield from super()._drop_cancelled(side, batch)
        for _ in self._best.take(batch.column(TUPLE).to_numpy()):
            pass  # They are forgotten.
