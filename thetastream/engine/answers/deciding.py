"""The second unit of a join that answers each tuple, if Spark evaluates a part of the condition.

    partners    the candidate pairs that Spark has not dropped
    decided     the decided tuples; a tuple has no partner if no pair with its number has come

The first unit (``candidates``) hands out a decided tuple in the same epoch as its last candidate pair or
later. So this unit reads all pairs of an epoch before the decided tuples, and needs no clock. It keeps one
bit for each tuple that has a partner and is not decided yet, or the nearest partners of each such tuple. If
partners may be deleted, it keeps their number in place of the bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import concat
from thetastream.core.cancellation import cancel
from thetastream.core.columns import DECIDED, KEY, NUMBERS, SIGN, SIGNS
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Role, Side
from thetastream.engine.answers.best_partners import BestPartners, BestState, mark_partners, pair_with_best
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.answers.open_tuples import NumberSet, Pages, PartnerCounts
from thetastream.engine.answers.unit import COPIED, GUEST, AnswersCounters, build_alone, build_pairs
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.store.segment import SegmentStore

ROWS = 0
"""The number of the only stream of the second unit: the rows of the first unit."""


@dataclass
class DecidingState:
    """The state of a second unit."""

    matched: dict[int, Pages] = field(default_factory=dict)
    """For each preserved stream, the pages of the set of undecided tuples that have a partner."""
    best: BestState = field(default_factory=BestState)


class DecidingUnit:
    """The second unit of a join that answers each tuple."""

    messages: Sequence[Message] = ()
    is_waiting = False

    def __init__(self, columns: CandidateColumns, state: DecidingState, store: SegmentStore) -> None:
        self._columns = columns
        self._how = columns.how
        self._matched: dict[Side, NumberSet] = {}
        self._counts: dict[Side, PartnerCounts] = {}
        for side in columns.how.preserved:
            pages = state.matched.get(side, [])
            if columns.signed[side.other]:
                self._counts[side] = PartnerCounts(pages, store)
            else:
                self._matched[side] = NumberSet(pages, store)
        k = 0 if columns.ranking is None else columns.ranking.k
        self._best = BestPartners(k, state.best, store, columns.signed[Side.RIGHT])
        self.counters = AnswersCounters()

    @property
    def state(self) -> DecidingState:
        """The current state."""
        pages: dict[int, Pages] = {
            side: found.pages for side, found in (*self._matched.items(), *self._counts.items())
        }
        return DecidingState(pages, self._best.state)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield its answers."""
        blocks = inbox.blocks(ROWS, Role.BOTH)
        # 1. Take the pairs.
        for block in blocks:
            pairs = block.filter(pc.is_null(block.column(DECIDED)))
            if pairs.num_rows:
                self.counters.matched += pairs.num_rows
                yield from self._take_partners(pairs)
        self._best.merge()
        # 2. Answer the decided tuples.
        for side in self._how.preserved:
            decided = [block.filter(pc.equal(block.column(DECIDED), int(side))) for block in blocks]
            decided = [block for block in decided if block.num_rows]
            if decided and self._columns.signed[side]:
                # Equal tuples are decided in one epoch, and cancel each other.
                decided = [concat(decided)]
            for block in decided:
                yield from self._decide(side, block)
        # 3. Write the state.
        for found in (*self._matched.values(), *self._counts.values()):
            found.write()
        self.counters.received = inbox.received
        self.counters.received_bytes = inbox.received_bytes

    def _take_partners(self, pairs: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Remember which tuples have partners. Yield the answers that are known now."""
        left, right = self._columns.payload
        if self._columns.ranking is not None:
            keys = pairs.column(KEY).to_numpy()
            numbers = _read_numbers(Side.LEFT, pairs)
            partners = pairs.select(right)
            if self._columns.signed[Side.RIGHT]:
                partners = partners.append_column(SIGN, pairs.column(SIGNS[Side.RIGHT]))
            self._best.add(numbers, keys, partners, np.arange(len(numbers)))
        elif self._how.has_pairs:
            for side in self._how.preserved:
                self._remember(side, pairs)
            if len(self._how.preserved) > 1:
                pairs = self._leave_out_copies(pairs)
            columns = pairs.select([*left, *right]).columns
            yield build_pairs(self._how, columns, pairs.num_rows, self._multiply_signs(pairs))
        elif self._counts:
            (side,) = self._how.preserved
            self._remember(side, pairs)
        else:
            yield from self._take_first(pairs)

    def _remember(self, side: Side, pairs: pa.RecordBatch) -> None:
        """Remember that the tuples of a side have partners, or how many if these may be deleted."""
        numbers = _read_numbers(side, pairs)
        is_mine = numbers >= 0
        if side in self._counts:
            signs = pairs.column(SIGNS[side.other]).to_numpy()
            self._counts[side].meet(numbers[is_mine], signs[is_mine])
        else:
            self._matched[side].add(numbers[is_mine])

    def _multiply_signs(self, pairs: pa.RecordBatch) -> pa.Array | None:
        """Return the sign of each pair; None if no stream has deletes."""
        if not any(self._columns.signed):
            return None
        return pc.multiply(*(pairs.column(name) for name in SIGNS))

    def _leave_out_copies(self, pairs: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out the pairs of copies, which the units that answer these copies return."""
        is_copied = np.logical_or(*(_read_numbers(side, pairs) == COPIED for side in Side))
        return pairs.take(np.flatnonzero(~is_copied)) if is_copied.any() else pairs

    def _take_first(self, pairs: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Remember the tuples that find their first partner. A semi join answers them."""
        (side,) = self._how.preserved
        numbers, first = np.unique(_read_numbers(side, pairs), return_index=True)
        is_new = ~self._matched[side].contain(numbers)
        self._matched[side].add(numbers[is_new])
        if is_new.any() and not self._how.has_unmatched:
            answered = pairs.take(first[is_new])
            columns = answered.select(self._columns.payload[side]).columns
            yield [*columns, *([answered.column(SIGNS[side])] if any(self._columns.signed) else [])]

    def _decide(self, side: Side, decided: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Forget decided tuples. Yield those without a partner, or the nearest partners.

        If partners of a semi join may be deleted, yield those with one.
        """
        numbers = _read_numbers(side, decided)
        if self._columns.ranking is None:
            has_partner = (self._counts.get(side) or self._matched[side]).remove(numbers)
        else:
            has_partner = np.zeros(len(numbers), np.bool_)
            left = decided.select(self._columns.payload[side])
            signs = decided.column(SIGNS[side]) if any(self._columns.signed) else None
            for matches in pair_with_best(left, signs, mark_partners(self._best.take(numbers), has_partner)):
                columns = [*matches.left.columns, *matches.right.columns]
                yield build_pairs(self._how, columns, matches.left.num_rows, matches.signs)
        alone: Mask = ~has_partner
        self.counters.unmatched += int(np.count_nonzero(alone))
        chosen = np.flatnonzero(has_partner if self._how.loses_partners else alone)
        if len(chosen) and (self._how.has_unmatched or self._how.loses_partners):
            answered = decided.take(chosen)
            if self._columns.signed[side]:
                signs = answered.column(SIGNS[side])
                answered = answered.select(self._columns.payload[side]).append_column(SIGN, signs)
                answered = cancel(answered)
            has_sign = any(self._columns.signed)
            yield build_alone(self._how, self._columns.payload, side, answered, has_sign)


def _read_numbers(side: Side, rows: pa.RecordBatch) -> Int64s:
    numbers: Int64s = pc.fill_null(rows.column(NUMBERS[side]), GUEST).to_numpy()
    return numbers
