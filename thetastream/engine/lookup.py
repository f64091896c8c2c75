"""Looks tuples of a stream up in a table, of which all rows are known.

    answers(t) = { r in TABLE : condition(t, r) is TRUE }

There is no window and no state: a tuple has all its partners at once, so it is answered when it arrives. The
rows of the table lie in runs of an index, as stored tuples of a unit do.

If only Spark can evaluate a part of the condition, candidate pairs of some tuples leave the lookup, and
behind them these tuples (``thetastream.engine.decided_lookup``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import RowFacts, cut_matches
from thetastream.core.columns import DECIDED, KEY, NUMBERS, PASSES, RANKED
from thetastream.core.how import How, PairRanking, select_nearest
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.counters import Counters
from thetastream.engine.matching import Residual
from thetastream.engine.store.box import Box, IndexPlan, build_box, encode_key_rows
from thetastream.engine.store.probing import BYTES_AT_ONCE, probe_segments
from thetastream.engine.store.ranked_run import SEARCHED, RankedRun, can_search, cost_more
from thetastream.engine.store.run import Run
from thetastream.engine.store.segment import MemoryStore, SegmentMeta

PROBES_AT_ONCE = 1 << 14
"""The number of tuples that are looked up together, so that the work for each run is shared."""


@dataclass(frozen=True)
class Lookup:
    """How tuples are looked up. Picklable."""

    plan: IndexPlan
    """The condition, and how the rows of the table are stored."""
    how: How
    ranking: PairRanking | None = None
    """How partners are ranked, if only the nearest are results."""
    candidates: CandidateColumns | None = None
    """The columns of candidate pairs, if Spark evaluates a part of the condition, and tuples are answered."""

    @property
    def side(self) -> Side:
        """The side of the tuples. The table is the other side."""
        return self.plan.stored.other

    def build_boxes(self, batch: pa.RecordBatch) -> Box:
        """Build the boxes of the tuples that pass the filters of their stream."""
        probing, _ = select_passing(batch)
        return build_box(self.plan, encode_key_rows(self.side, self.plan.condition, probing))

    def answer(
        self, batch: pa.RecordBatch, runs: "TableRuns", first: int = 0, counters: Counters | None = None
    ) -> Iterator[list[pa.Array]]:
        """Yield the columns of results for tuples of the stream.

        Results have the columns of the streams that ``how`` shows, left before right. For an outer join, a
        boolean column follows: whether a row has a partner. If Spark evaluates a part of the condition, they
        are candidate pairs, and behind those of the whole batch the tuples that they decide.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            The tuples. Those that fail a filter have NULL in the column ``PASSES``, and no partners.
        runs : TableRuns
            The rows of the table.
        first : int
            The number of tuples that the task has looked up before.
        counters : Counters, optional
            Counts the pairs that are found, which are not the results of a join that is not inner.
        """
        counters = Counters() if counters is None else counters
        if self.candidates is not None:
            yield from self._propose(batch, runs, self.candidates, first, counters)
            return
        probing, places = select_passing(batch)
        is_matched = np.zeros(batch.num_rows, dtype=np.bool_)
        find = self._find if self.ranking is None else self._find_nearest
        for found, partner, stored in find(probing, runs):
            is_matched[places[found]] = True
            counters.matched += len(found)
            if self.how.has_pairs:
                yield self._make_pairs(probing, found, partner, stored)
        if self.how.has_unmatched or not self.how.has_pairs:
            rows = np.flatnonzero(~is_matched if self.how.has_unmatched else is_matched)
            if len(rows):
                yield self._make_alone(batch, rows, runs.payload)

    def _propose(
        self,
        batch: pa.RecordBatch,
        runs: "TableRuns",
        columns: CandidateColumns,
        first: int,
        counters: Counters,
    ) -> Iterator[list[pa.Array]]:
        """Yield candidate pairs, each with the number of its tuple in the task, and then the tuples."""
        probing, places = select_passing(batch)
        has_pair = np.zeros(batch.num_rows, dtype=np.bool_)
        for found, partner, stored in self._find(probing, runs):
            has_pair[places[found]] = True
            counters.matched += len(found)
            values = {NUMBERS[self.side]: pa.array(first + places[found])}
            if self.ranking is not None:
                values[KEY] = pa.array(self.ranking.rank_pairs(probing, found, partner, stored))
            yield columns.build(len(found), self._take_pairs(probing, found, partner, stored), values)
        rows = np.flatnonzero(has_pair | self.how.has_unmatched)
        if len(rows):
            decided = pa.array(np.full(len(rows), self.side, np.int8))
            values = {NUMBERS[self.side]: pa.array(first + rows), DECIDED: decided}
            yield columns.build(len(rows), self._pad(batch, rows, runs.payload), values)

    def _find(
        self, probing: pa.RecordBatch, runs: "TableRuns"
    ) -> Iterator[tuple[Int64s, pa.RecordBatch, Int64s]]:
        """Yield the places of tuples, the rows of a run, and the places of their partners in it."""
        condition, residual = self.plan.condition, Residual(self.plan.condition)
        keys = encode_key_rows(self.side, condition, probing)
        has_one = not self.how.has_pairs and residual.is_empty and self.candidates is None
        candidates = probe_segments(runs.segments, runs.store, self.plan, keys, RowFacts(probing), has_one)
        for one in candidates:
            found, stored = residual.keep(self.side, probing, one)
            if len(found):
                yield found, one.payload, stored

    def _find_nearest(
        self, probing: pa.RecordBatch, runs: "TableRuns"
    ) -> Iterator[tuple[Int64s, pa.RecordBatch, Int64s]]:
        """Yield what ``_find`` yields, for the nearest partners of each tuple only."""
        ranking = self.ranking
        assert ranking is not None
        best = _Best(ranking.k)
        is_hard = np.ones(probing.num_rows, dtype=np.bool_)
        ordered = ranking.ordered if can_search(self.plan) else None
        keys = encode_key_rows(self.side, self.plan.condition, probing)
        probe = partial(probe_segments, runs.segments, runs.store, self.plan)
        if ordered is not None and cost_more(probing, keys, probe, SEARCHED * len(keys)):
            # 1. Search in the order of the values.
            box = build_box(self.plan, keys)
            values = probing.column(RANKED) if ordered.has_left else None
            searched = [RankedRun.of(run, self.plan, ordered).find(box, values) for run in runs.runs]
            is_hard = np.logical_or.reduce([np.zeros_like(is_hard), *(one[3] for one in searched)])
            for number, (found, stored, rank, _) in enumerate(searched):
                is_kept = ~is_hard[found]
                best.add(found[is_kept], stored[is_kept], rank[is_kept], number)
        # 2. Rank all partners of the other tuples.
        hard = np.flatnonzero(is_hard)
        if len(hard):
            rest = probing.take(pa.array(hard))
            numbers = {id(run.payload): number for number, run in enumerate(runs.runs)}
            for found, partner, stored in self._find(rest, runs):
                rank = ranking.rank_pairs(rest, found, partner, stored)
                best.add(hard[found], stored, rank, numbers[id(partner)])
        facts = RowFacts(probing)
        for number, run in enumerate(runs.runs):
            found, stored = best.select(number)
            for piece in cut_matches(facts, found, run.facts, stored, BYTES_AT_ONCE):
                yield found[piece], run.payload, stored[piece]

    def _make_pairs(
        self, probing: pa.RecordBatch, found: Int64s, partner: pa.RecordBatch, stored: Int64s
    ) -> list[pa.Array]:
        pairs = self._take_pairs(probing, found, partner, stored)
        return pairs + [pa.array(np.ones(len(found), dtype=np.bool_))] * len(self.how.padded)

    def _take_pairs(
        self, probing: pa.RecordBatch, found: Int64s, partner: pa.RecordBatch, stored: Int64s
    ) -> list[pa.Array]:
        sides = self.plan.condition.sides
        mine = probing.select(sides[self.side].columns).take(found).columns
        theirs = partner.select(sides[self.side.other].columns).take(stored).columns
        return [*mine, *theirs] if self.side is Side.LEFT else [*theirs, *mine]

    def _make_alone(self, batch: pa.RecordBatch, rows: Int64s, table: pa.Schema) -> list[pa.Array]:
        """Make the rows of tuples without their partners."""
        if not self.how.has_pairs:
            return list(batch.select(self.plan.condition.sides[self.side].columns).take(rows).columns)
        return [*self._pad(batch, rows, table), pa.array(np.zeros(len(rows), dtype=np.bool_))]

    def _pad(self, batch: pa.RecordBatch, rows: Int64s, table: pa.Schema) -> list[pa.Array]:
        """Take tuples, and NULL in the columns of the table."""
        sides = self.plan.condition.sides
        mine = batch.select(sides[self.side].columns).take(rows).columns
        nothing = [pa.nulls(len(rows), table.field(name).type) for name in sides[self.side.other].columns]
        return [*mine, *nothing] if self.side is Side.LEFT else [*nothing, *mine]


def select_passing(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """Return the tuples that pass the filters, and their places in the batch."""
    every = np.arange(batch.num_rows)
    if PASSES not in batch.schema.names:
        return batch, every
    passes = batch.column(PASSES).is_valid()
    return batch.filter(passes), every[passes.to_numpy(zero_copy_only=False)]


class _Best:
    """The nearest partners that tuples have found so far."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._parts = [np.zeros((4, 0), dtype=np.int64)]
        """For each pair: the tuple, the row, the key of its rank, and the run of the row."""
        self._n_new = 0

    def add(self, found: Int64s, stored: Int64s, rank: Int64s, run: int) -> None:
        """Add pairs with rows of a run."""
        self._parts.append(np.stack([found, stored, rank, np.full(len(found), run)]).astype(np.int64))
        self._n_new += len(found)
        if self._n_new > _PRUNE_PAIRS:
            self._prune()

    def select(self, run: int) -> tuple[Int64s, Int64s]:
        """Select the nearest pairs whose rows lie in a run."""
        self._prune()
        (best,) = self._parts
        mine = best[:, best[3] == run]
        return mine[0], mine[1]

    def _prune(self) -> None:
        every = np.concatenate(self._parts, axis=1)
        self._parts = [every[:, select_nearest(every[0], every[2], self._k)]]
        self._n_new = 0


_PRUNE_PAIRS = 1 << 18
"""Pairs are reduced to the nearest ones as soon as so many are new."""


class TableRuns:
    """The rows of a version of a table.

    Parameters
    ----------
    runs : sequence of Run
    payload : pyarrow.Schema
        The columns of the table, which are known without any row.
    """

    def __init__(self, runs: Sequence[Run], payload: pa.Schema) -> None:
        self.payload = payload
        self.runs = runs
        self.store = MemoryStore()
        self.segments = []
        for number, run in enumerate(runs):
            meta = SegmentMeta(str(number), 1, 0, run.n_rows, run.nbytes, 0, 0)
            self.store.put(meta, run)
            self.segments.append(meta)
