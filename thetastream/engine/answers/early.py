"""One unit of an outer join that answers rows without partners at once, and takes the answers back.

    after each epoch    { (l, r) : l, r match }  and  { (l, NULL) : l in L has no partner so far }

A preserved tuple that has no partner at the end of its epoch is an answer. Its first partner takes the answer
back, and if its last partner is deleted, it is an answer again. The unit keeps the number of partners of each
tuple that may still change. All equal tuples of a row have the same number after each epoch, so a delete of a
preserved tuple needs no lookup: it is answered like its insert, with the opposite sign.

Nothing waits, so streams need no window. Tuples whose partners are all known are forgotten.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import Signs, read_signs
from thetastream.core.columns import SIGN
from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.engine.answers.unit import AnsweringUnit, AnswersState, read_numbers
from thetastream.engine.clock import Clock
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.spec import TwoStreamSpec


class EarlyUnit(AnsweringUnit):
    """One unit of an outer join that answers rows without partners at once."""

    def __init__(
        self, join: TwoStreamSpec, how: How, slot: int, state: AnswersState, store: SegmentStore
    ) -> None:
        super().__init__(join, how, slot, state, store)
        self._new: dict[Side, list[pa.RecordBatch]] = {side: [] for side in self._open}
        self._changed: dict[Side, list[pa.RecordBatch]] = {side: [] for side in self._open}

    def _counts_partners(self, side: Side) -> bool:
        return True  # the first and the last partner of a tuple change its answer

    def _number(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        numbered = super()._number(side, batch)
        self._new[side].append(numbered)
        return numbered

    def _meet(self, side: Side, batch: pa.RecordBatch, signs: Signs | None) -> None:
        """Count partners, and keep the older tuples that have found a first one or lost the last one."""
        waiting, numbers = self._open[side], read_numbers(batch)
        is_older = (numbers >= 0) & (numbers < self._first_new[side])
        older, first = np.unique(numbers[is_older], return_index=True)
        were_alone = waiting.are_open(older)
        super()._meet(side, batch, signs)
        has_changed = were_alone != waiting.are_open(older)
        if has_changed.any():
            changed = batch.take(np.flatnonzero(is_older)[first[has_changed]])
            kinds = np.where(were_alone[has_changed], -1, 1).astype(np.int8)
            mine = read_signs(changed)
            assert mine is not None
            place = changed.schema.get_field_index(SIGN)
            self._changed[side].append(changed.set_column(place, SIGN, pa.array(mine * kinds)))

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Yield the answers without a partner that have come or gone, and forget what cannot change."""
        for batch in self._changed[side]:
            yield self._build_alone(side, batch)
        for batch in self._new[side]:
            alone = batch.take(np.flatnonzero(self._open[side].are_open(read_numbers(batch))))
            if alone.num_rows:
                yield from self._answer_unmatched(side, alone)
        for _ in self._take_due(side, clock):
            pass  # No partner of these tuples comes or goes any more.
