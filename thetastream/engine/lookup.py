"""Looks tuples of a stream up in a table, of which all rows are known.

    answers(t) = { r in TABLE : condition(t, r) is TRUE }

There is no window and no state: a tuple has all its partners at once, so it is answered when it arrives. The
rows of the table lie in runs of an index, as stored tuples of a unit do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import RowBytes
from thetastream.core.columns import PASSES
from thetastream.core.how import How
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.matching import Residual
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.probing import probe_segments
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

    @property
    def side(self) -> Side:
        """The side of the tuples. The table is the other side."""
        return self.plan.stored.other

    def answer(self, batch: pa.RecordBatch, runs: "TableRuns") -> Iterator[list[pa.Array]]:
        """Yield the columns of results for tuples of the stream.

        Results have the columns of the streams that ``how`` shows, left before right. For an outer join, a
        boolean column follows: whether a row has a partner.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            The tuples. Those that fail a filter have NULL in the column ``PASSES``, and no partners.
        runs : TableRuns
            The rows of the table.
        """
        probing, places = _select_passing(batch)
        is_matched = np.zeros(batch.num_rows, dtype=np.bool_)
        for found, partner, stored in self._find(probing, runs):
            is_matched[places[found]] = True
            if self.how.has_pairs:
                yield self._make_pairs(probing, found, partner, stored)
        if not self.how.is_inner:
            rows = np.flatnonzero(~is_matched if self.how.has_unmatched else is_matched)
            if len(rows):
                yield self._make_alone(batch, rows, runs.payload)

    def _find(
        self, probing: pa.RecordBatch, runs: "TableRuns"
    ) -> Iterator[tuple[Int64s, pa.RecordBatch, Int64s]]:
        """Yield the places of tuples, the rows of a run, and the places of their partners in it."""
        condition, residual = self.plan.condition, Residual(self.plan.condition)
        keys = encode_key_rows(self.side, condition, probing)
        candidates = probe_segments(runs.segments, runs.store, self.plan, keys, RowBytes(probing))
        for found, partner, stored, _ in candidates:
            found, stored = residual.keep(self.side, probing, found, partner, stored)
            if len(found):
                yield found, partner, stored

    def _make_pairs(
        self, probing: pa.RecordBatch, found: Int64s, partner: pa.RecordBatch, stored: Int64s
    ) -> list[pa.Array]:
        sides = self.plan.condition.sides
        mine = probing.select(sides[self.side].columns).take(found).columns
        theirs = partner.select(sides[self.side.other].columns).take(stored).columns
        pairs = [*mine, *theirs] if self.side is Side.LEFT else [*theirs, *mine]
        return pairs + [pa.array(np.ones(len(found), dtype=np.bool_))] * len(self.how.padded)

    def _make_alone(self, batch: pa.RecordBatch, rows: Int64s, table: pa.Schema) -> list[pa.Array]:
        """Make the rows of tuples without their partners."""
        sides = self.plan.condition.sides
        mine = batch.select(sides[self.side].columns).take(rows).columns
        if not self.how.has_pairs:
            return list(mine)
        nothing = [pa.nulls(len(rows), table.field(name).type) for name in sides[self.side.other].columns]
        both = [*mine, *nothing] if self.side is Side.LEFT else [*nothing, *mine]
        return [*both, pa.array(np.zeros(len(rows), dtype=np.bool_))]


def _select_passing(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s]:
    """Return the tuples that pass the filters, and their places in the batch."""
    every = np.arange(batch.num_rows)
    if PASSES not in batch.schema.names:
        return batch, every
    passes = batch.column(PASSES).is_valid()
    return batch.filter(passes), every[passes.to_numpy(zero_copy_only=False)]


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
        self.store = MemoryStore()
        self.segments = []
        for number, run in enumerate(runs):
            meta = SegmentMeta(str(number), 1, 0, run.n_rows, run.nbytes, 0, 0)
            self.store.put(meta, run)
            self.segments.append(meta)
