"""One unit of an outer, semi or anti join.

    left    { (l, r) : l, r match }  and  { (l, NULL) : l in L without partners }
    semi    { l in L : l has a partner }
    anti    { l in L : l has no partner }

Each preserved tuple meets all its partners at the unit that stores it (``Model.sees_partners``). Therefore
the unit decides the tuple alone. An open tuple has found no partner yet (``open_tuples``). At the end of each
epoch, the tuples with t + W <= watermark are decided: later epochs admit only tuples after the watermark, so
none of them is a partner. Open tuples among the decided ones have no partner. A preserved tuple that fails a
condition over its own stream, or has a NULL key, can have no partner. It is answered in the epoch in which it
arrives, and it is not stored. While units change, a unit also receives tuples that another unit answers
(``thetastream.runtime.control.handover``). These tuples are never open here. Guests (role PROBE) only look
for partners. Copies (role COPY) are stored too, and their pairs are returned by the unit that answers them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches
from thetastream.core.columns import PASSES, TUPLE
from thetastream.core.how import How
from thetastream.core.keys import HIGHEST, Int64s
from thetastream.core.sides import Role, Side
from thetastream.engine.answers.open_tuples import Mask, OpenState, OpenTuples
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.query import Tuples, UnitState
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.unit import Unit

GUEST, COPIED = -1, -2
"""Tuples of a preserved stream that another unit answers have one of these numbers, by their role."""
FORGET_ROWS = 1 << 12
"""Semi and anti joins drop the answered tuples when they exceed the open ones by more than this number."""


@dataclass
class AnswersState:
    """The state of a unit: the stored tuples, and which of the preserved ones are open."""

    join: UnitState = field(default_factory=UnitState)
    open: dict[int, OpenState] = field(default_factory=dict)


@dataclass
class AnswersCounters(Counters):
    """The work of a unit that answers each preserved tuple."""

    unmatched: int = 0
    """Preserved tuples that were answered without a partner."""
    undecided: int = 0
    """Preserved tuples that have no partner at the end of the epoch and may still find one."""


class AnsweringUnit(Unit):
    """One unit of an outer, semi or anti join.

    Results have the columns of the streams that are shown. If streams are padded, a boolean column per padded
    stream follows, which is true if the row has a tuple of this stream.
    """

    counters_type = AnswersCounters
    counters: AnswersCounters
    _nothing: ClassVar[pa.RecordBatch] = pa.RecordBatch.from_arrays([], names=[])

    def __init__(
        self, join: TwoStreamSpec, how: How, slot: int, state: AnswersState, store: SegmentStore
    ) -> None:
        super().__init__(join.unit, join.model, slot, state.join, store)
        self._how = how
        self._open = {side: OpenTuples(state.open.get(side) or OpenState(), store) for side in how.preserved}
        self._without_partners: list[tuple[Side, pa.RecordBatch]] = []

    @property
    def state(self) -> AnswersState:
        """The current state."""
        return AnswersState(self.joined, {side: found.state for side, found in self._open.items()})

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield its answers."""
        # 1. Join. Matches close the preserved tuples that find their first partner.
        for matches in self.join(inbox, clock):
            yield self._answer_matched(matches)
        # 2. Answer the tuples that no tuple can join.
        for side, batch in self._without_partners:
            yield from self._answer_unmatched(side, batch)
        # 3. Decide the tuples whose partners are all known.
        for side in self._how.preserved:
            yield from self._decide(side, clock)
        # 4. Forget what is answered.
        self.expire(clock)
        if not self._how.has_pairs:
            self._forget_answered()
        for found in self._open.values():
            found.write()
            self.counters.undecided += found.count()
        self.finish(inbox)
        self.counters.partners_until_us = self._find_partners_until()

    # Admission

    def _admit(self, inbox: Inbox, side: Side, role: Role, late_us: int | None) -> pa.RecordBatch | None:
        """Number the timely tuples of a preserved stream, and set those apart that can have no partner."""
        batch = super()._admit(inbox, side, role, late_us)
        if batch is None or side not in self._open:
            return batch
        if PASSES in batch.schema.names:
            passes = batch.column(PASSES).is_valid()
            batch = batch.drop_columns([PASSES])
            if passes.false_count:
                if role is Role.BOTH:
                    failed = batch.filter(np.logical_not(passes))
                    self._without_partners.append((side, failed))
                batch = batch.filter(passes)
        if role is Role.BOTH:
            return self._number(side, batch)
        number = GUEST if role is Role.PROBE else COPIED
        return batch.append_column(TUPLE, pa.array(np.full(batch.num_rows, number)))

    def _number(self, side: Side, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Number new tuples of a preserved stream, which are open."""
        return batch.append_column(TUPLE, pa.array(self._open[side].add(batch.num_rows)))

    # Joining

    def _needs_one(self, side: Side) -> bool:
        return not self._how.has_pairs and side in self._open and self._residual.is_empty

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        if not self._how.has_pairs:
            yield from self._match_first(side, payload, candidates)
            return
        for matches in super()._match(side, payload, candidates):
            for mine, waiting in self._open.items():
                waiting.close(_read_numbers((matches.left, matches.right)[mine]))
            if len(self._open) > 1:
                matches = _leave_out_copies(matches)
            left, right = (
                batch.drop_columns([TUPLE]) if mine in self._open else batch
                for mine, batch in zip(Side, (matches.left, matches.right), strict=True)
            )
            yield Matches(left, right)

    def _match_first(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Close the open tuples that have a match among the candidates. A semi join returns them."""
        (preserved,) = self._how.preserved
        is_probing, waiting = side is preserved, self._open[preserved]
        for found, partner, stored, n_candidates in candidates:
            self.counters.candidates += n_candidates
            # 1. Ignore candidates whose preserved tuple has a partner already.
            batch, rows = (payload, found) if is_probing else (partner, stored)
            numbers = _read_numbers(batch)
            is_open = waiting.are_open(numbers[rows])
            if not is_open.any():
                continue
            # 2. Check the rest of the condition.
            found, stored = self._residual.keep(side, payload, found[is_open], partner, stored[is_open])
            self.counters.matched += len(found)
            # 3. Close each matched tuple once.
            rows = np.unique(found if is_probing else stored)
            waiting.close(numbers[rows])
            if len(rows) and not self._how.has_unmatched:
                yield Matches(batch.select(self._columns[preserved]).take(rows), self._nothing)

    def _store(self, side: Side, tuples: Tuples | None) -> None:
        if tuples is not None and side in self._open and not self._how.has_pairs:
            # A tuple that has found a partner among the stored tuples is answered already.
            tuples = tuples.take(self._open[side].are_open(_read_numbers(tuples.payload)))
        super()._store(side, tuples)

    @property
    def _columns(self) -> tuple[Sequence[str], Sequence[str]]:
        left, right = super()._columns
        if not self._how.has_pairs:
            return left, right
        number = {side: [TUPLE] * (side in self._open) for side in Side}
        return [*left, *number[Side.LEFT]], [*right, *number[Side.RIGHT]]

    # Answers

    def _answer_matched(self, matches: Matches) -> list[pa.Array]:
        """Return the columns of the answers to tuples that have found partners."""
        return build_pairs(self._how, matches.columns, matches.left.num_rows)

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Close the tuples whose partners are all known. Yield those of them that have no partner."""
        interval = self._find_due(side, clock)
        if interval is None:
            return
        for batch in self._indexes[side].find_due(*interval):
            was_open = self._open[side].close(_read_numbers(batch))
            if was_open.any():
                yield from self._answer_unmatched(side, batch.take(np.flatnonzero(was_open)))

    def _find_due(self, side: Side, clock: Clock) -> tuple[int | None, int] | None:
        """Return the interval (after, until] of event times that this epoch decides; None if there is none.

        The epoch before has decided the tuples with t + W at or before its watermark. If W is negative, it
        has decided its tuples with t at or before its watermark, and later epochs admit no others.
        """
        if clock.is_last:
            return None, HIGHEST
        lifetime = self._spec.describe_stored(side).lifetime_us
        if clock.watermark_us is None or lifetime is None:
            return None
        after = None if clock.late_us is None else clock.late_us - max(lifetime, 0)
        return after, clock.watermark_us - lifetime

    def _answer_unmatched(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield tuples of a preserved stream that have no partner, if these are results."""
        self.counters.unmatched += batch.num_rows
        if self._how.has_unmatched:
            names = [spec.columns for spec in self._spec.condition.sides]
            yield build_alone(self._how, names, side, batch)

    def _find_partners_until(self) -> int | None:
        """Find the watermark from which on no stored tuple can be a partner of a new preserved tuple."""
        ends = [
            meta.max_ts + lifetime
            for side in self._how.partners
            if (lifetime := self._spec.describe_stored(side).lifetime_us) is not None
            for meta in self._indexes[side].segments
        ]
        return max(ends, default=None)

    def _forget_answered(self) -> None:
        """Drop the stored tuples that have an answer, if they are many."""
        for side, waiting in self._open.items():
            held = sum(meta.n_rows for meta in self._indexes[side].segments)
            if held > 2 * waiting.count() + FORGET_ROWS:
                self._indexes[side].retain(partial(_are_open, waiting))


def _leave_out_copies(matches: Matches) -> Matches:
    """Leave out the matches of copies, which the units that answer these copies return."""
    is_copied = np.logical_or(*(_read_numbers(batch) == COPIED for batch in (matches.left, matches.right)))
    if not is_copied.any():
        return matches
    rows = np.flatnonzero(~is_copied)
    return Matches(matches.left.take(rows), matches.right.take(rows))


def _are_open(waiting: OpenTuples, batch: pa.RecordBatch) -> Mask:
    return waiting.are_open(_read_numbers(batch))


def _read_numbers(batch: pa.RecordBatch) -> Int64s:
    numbers: Int64s = batch.column(TUPLE).to_numpy()
    return numbers


def build_pairs(how: How, columns: Iterable[pa.Array], n: int) -> list[pa.Array]:
    """Build ``n`` answers whose tuples have partners; ``columns`` are those of the shown streams."""
    return [*columns, *(pa.array(np.ones(n, np.bool_)) for _ in how.padded)]


def build_alone(
    how: How, names: Sequence[Sequence[str]], side: Side, batch: pa.RecordBatch
) -> list[pa.Array]:
    """Build an answer without a partner for each tuple of ``side``.

    ``names`` has the columns of left and of right tuples.
    """
    n, columns = batch.num_rows, []
    for shown in how.shown:
        columns += [batch.column(name) if shown is side else pa.nulls(n) for name in names[shown]]
    return [*columns, *(pa.array(np.full(n, padded is side)) for padded in how.padded)]
