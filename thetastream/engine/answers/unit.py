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

If rows may be deleted, W is at least 0, and a tuple has a partner if more partners are inserted than deleted.
If partners may be deleted, the unit counts them (``CountedTuples``), and a semi join answers a tuple when it
is decided. All equal tuples of a row have the same number of partners after each epoch, because they meet the
same tuples. So equal tuples of opposite sign, which are decided in one epoch, cancel each other before they
are answered.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches, concat
from thetastream.core.cancellation import Signs, cancel, read_signs
from thetastream.core.columns import PASSES, SIGN, TUPLE
from thetastream.core.how import How
from thetastream.core.keys import HIGHEST, Int64s, Mask
from thetastream.core.sides import Role, Side
from thetastream.engine.answers.open_tuples import CountedTuples, OpenState, OpenTuples, Undecided
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
    stream follows, which is true if the row has a tuple of this stream. The last column is the sign, if a
    stream has deletes.
    """

    counters_type = AnswersCounters
    counters: AnswersCounters
    _nothing: ClassVar[pa.RecordBatch] = pa.RecordBatch.from_arrays([], names=[])

    def __init__(
        self, join: TwoStreamSpec, how: How, slot: int, state: AnswersState, store: SegmentStore
    ) -> None:
        super().__init__(join.unit, join.model, slot, state.join, store)
        self._how = how
        self._signed = [spec.has_deletes for spec in join.unit.condition.sides]
        self._open: dict[Side, Undecided] = {}
        for side in how.preserved:
            undecided = CountedTuples if self._counts_partners(side) else OpenTuples
            self._open[side] = undecided(state.open.get(side) or OpenState(), store)
        self._first_new = {side: found.state.n_numbered for side, found in self._open.items()}
        """The first number of this epoch's tuples, by side."""
        self._without_partners: list[tuple[Side, pa.RecordBatch]] = []

    def _counts_partners(self, side: Side) -> bool:
        """Whether the unit counts the partners of the tuples of a side, because these may be deleted."""
        return self._signed[side.other]

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
        # 4. Forget what is answered, and what is deleted.
        self.expire(clock)
        if self._answers_at_once:
            self._forget_answered()
        for side, found in self._open.items():
            for batch in self._indexes[side].take_cancelled():
                yield from self._drop_cancelled(side, batch)
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

    @property
    def _answers_at_once(self) -> bool:
        """Whether a tuple of a semi or anti join needs no other partner when it has found one."""
        return not self._how.has_pairs and not self._signed[self._how.partners[0]]

    def _needs_one(self, side: Side) -> bool:
        return self._answers_at_once and side in self._open and self._residual.is_empty

    def _gather_deletes(self, side: Side) -> pa.RecordBatch | None:
        if not self._how.has_pairs:
            return None
        return self._indexes[side].gather_deletes(self._spec.condition.sides[side].columns)

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        if self._answers_at_once:
            yield from self._match_first(side, payload, candidates)
            return
        if not self._how.has_pairs:
            self._count_partners(side, payload, candidates)
            return
        for matches in super()._match(side, payload, candidates):
            for mine in self._open:
                batch = (matches.left, matches.right)[mine]
                self._meet(mine, batch, find_partner_signs(matches.signs, read_signs(batch)))
            if len(self._open) > 1:
                matches = _leave_out_copies(matches)
            left, right = (
                batch.select(spec.columns)
                for batch, spec in zip((matches.left, matches.right), self._spec.condition.sides, strict=True)
            )
            yield Matches(left, right, matches.signs)

    def _meet(self, side: Side, batch: pa.RecordBatch, signs: Signs | None) -> None:
        """Remember that these preserved tuples have met partners of these signs; None stands for 1."""
        self._open[side].meet(read_numbers(batch), signs)

    def _count_partners(self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]) -> None:
        """Count the partners among the candidates. Results follow when their tuples are decided."""
        (preserved,) = self._how.preserved
        for one in candidates:
            self.counters.candidates += one.n_compared
            found, stored = self._residual.keep(side, payload, one)
            self.counters.matched += len(found)
            mine, theirs = (payload, found), (one.payload, stored)
            (batch, rows), (others, other_rows) = (mine, theirs) if side is preserved else (theirs, mine)
            signs = read_signs(others)
            assert signs is not None
            self._open[preserved].meet(read_numbers(batch)[rows], signs[other_rows])

    def _match_first(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Close the open tuples that have a match among the candidates. A semi join returns them.

        Partners are not deleted here.
        """
        (preserved,) = self._how.preserved
        is_probing, waiting = side is preserved, self._open[preserved]
        for one in candidates:
            self.counters.candidates += one.n_compared
            # 1. Ignore candidates whose preserved tuple has a partner already.
            batch, rows = (payload, one.probes) if is_probing else (one.payload, one.stored)
            numbers = read_numbers(batch)
            is_open = waiting.are_open(numbers[rows])
            if not is_open.any():
                continue
            # 2. Check the rest of the condition.
            undecided = one._replace(probes=one.probes[is_open], stored=one.stored[is_open])
            found, stored = self._residual.keep(side, payload, undecided)
            self.counters.matched += len(found)
            # 3. Close each matched tuple once.
            rows = np.unique(found if is_probing else stored)
            waiting.close(numbers[rows])
            if len(rows) and not self._how.has_unmatched:
                answered = batch.take(rows)
                signs = answered.column(SIGN) if self._signed[preserved] else None
                columns = self._spec.condition.sides[preserved].columns
                yield Matches(answered.select(columns), self._nothing, signs)

    def _store(self, side: Side, tuples: Tuples | None) -> None:
        if tuples is not None and side in self._open and self._answers_at_once:
            # A tuple that has found a partner among the stored tuples is answered already.
            numbers = read_numbers(tuples.facts.batch)
            numbers = numbers if tuples.places is None else numbers[tuples.places]
            tuples = tuples.take(self._open[side].are_open(numbers))
        super()._store(side, tuples)

    @property
    def _columns(self) -> tuple[Sequence[str], Sequence[str]]:
        left, right = super()._columns
        if not self._how.has_pairs:
            return left, right
        more = [
            [TUPLE, *([SIGN] if self._signed[side] else [])] if side in self._open else [] for side in Side
        ]
        return [*left, *more[Side.LEFT]], [*right, *more[Side.RIGHT]]

    # Answers

    def _answer_matched(self, matches: Matches) -> list[pa.Array]:
        """Return the columns of the answers to tuples that have found partners."""
        columns = [*matches.left.columns, *matches.right.columns]
        return build_pairs(self._how, columns, matches.left.num_rows, matches.signs)

    def _decide(self, side: Side, clock: Clock) -> Iterator[list[pa.Array]]:
        """Close the tuples whose partners are all known. Yield those of them that this makes results.

        These are the tuples without partners; in a semi join whose partners may be deleted, those with one.
        """
        is_semi = self._how.loses_partners
        found = self._take_due(side, clock)
        due: Iterable[pa.RecordBatch] = (
            batch.take(np.flatnonzero(~was_open if is_semi else was_open)) for batch, was_open in found
        )
        if self._signed[side]:
            # Equal tuples have one event time, so they are decided together.
            batches = [*due]
            due = [cancel(concat(batches))] if batches else []
        for batch in due:
            if batch.num_rows and is_semi:
                yield self._build_alone(side, batch)
            elif batch.num_rows:
                yield from self._answer_unmatched(side, batch)

    def _take_due(self, side: Side, clock: Clock) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """Close the tuples that this epoch decides. Yield them, and which of them were open.

        Tuples that earlier epochs decided may still be stored, and are left out.
        """
        until_us = HIGHEST if clock.is_last else self._find_decided_until(side, clock.watermark_us)
        # The watermark of the end does not rise, so an equal one means that the epoch before was the last.
        has_ended_before = clock.is_last and clock.late_us is not None and clock.late_us == clock.watermark_us
        if until_us is None or has_ended_before:
            return
        decided_us = self._find_decided_until(side, clock.late_us)
        # Tuples that are admitted now are after the watermark of the epoch before.
        after_us = None if decided_us is None or clock.late_us is None else min(decided_us, clock.late_us)
        for batch, times in self._indexes[side].find_due(after_us, until_us):
            numbers = read_numbers(batch)
            if decided_us is not None:
                is_decided = (times <= decided_us) & (numbers < self._first_new[side])
                if is_decided.any():
                    rows = np.flatnonzero(~is_decided)
                    batch, numbers = batch.take(rows), numbers[rows]
            yield batch, self._open[side].close(numbers)

    def _find_decided_until(self, side: Side, watermark_us: int | None) -> int | None:
        """Return the event time up to which all tuples of a side are decided at a watermark, if there is one.

        A tuple with the event time t is decided when the watermark has reached t + lifetime. The lifetime is
        negative if all partners are earlier by a gap, and no tuple of this side is deleted. Then a tuple may
        be decided when it arrives.
        """
        lifetime_us = self._spec.describe_stored(side).lifetime_us
        return None if watermark_us is None or lifetime_us is None else watermark_us - lifetime_us

    def _drop_cancelled(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Forget stored tuples that have cancelled each other."""
        self._open[side].close(read_numbers(batch))
        yield from ()

    def _answer_unmatched(self, side: Side, batch: pa.RecordBatch) -> Iterator[list[pa.Array]]:
        """Yield tuples of a preserved stream that have no partner, if these are results."""
        self.counters.unmatched += batch.num_rows
        if self._how.has_unmatched:
            yield self._build_alone(side, batch)

    def _build_alone(self, side: Side, batch: pa.RecordBatch) -> list[pa.Array]:
        names = [spec.columns for spec in self._spec.condition.sides]
        return build_alone(self._how, names, side, batch, any(self._signed))

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
    is_copied = np.logical_or(*(read_numbers(batch) == COPIED for batch in (matches.left, matches.right)))
    if not is_copied.any():
        return matches
    return matches.take(np.flatnonzero(~is_copied))


def _are_open(waiting: Undecided, batch: pa.RecordBatch) -> Mask:
    return waiting.are_open(read_numbers(batch))


def read_numbers(batch: pa.RecordBatch) -> Int64s:
    """Return the numbers that the unit has given to preserved tuples."""
    numbers: Int64s = batch.column(TUPLE).to_numpy()
    return numbers


def find_partner_signs(pairs: pa.Array | None, mine: Signs | None) -> Signs | None:
    """Return the signs of the partners in pairs, by the signs of the pairs and of the tuples themselves.

    >>> find_partner_signs(pa.array([1, -1, 1], pa.int8()), np.array([1, 1, -1], np.int8))
    array([ 1, -1, -1], dtype=int8)
    """
    if pairs is None or mine is None:
        return None if pairs is None else pairs.to_numpy()
    signs: Signs = pairs.to_numpy() * mine
    return signs


def build_pairs(
    how: How, columns: Iterable[pa.Array], n: int, signs: pa.Array | None = None
) -> list[pa.Array]:
    """Build ``n`` answers whose tuples have partners; ``columns`` are those of the shown streams."""
    flags = [pa.array(np.ones(n, np.bool_)) for _ in how.padded]
    return [*columns, *flags, *([] if signs is None else [signs])]


def build_alone(
    how: How, names: Sequence[Sequence[str]], side: Side, batch: pa.RecordBatch, has_sign: bool = False
) -> list[pa.Array]:
    """Build an answer without a partner for each tuple of ``side``.

    ``names`` has the columns of left and of right tuples. With ``has_sign``, the sign of the tuple is last; a
    tuple of a stream without deletes has the sign 1.
    """
    n, columns = batch.num_rows, []
    for shown in how.shown:
        columns += [batch.column(name) if shown is side else pa.nulls(n) for name in names[shown]]
    columns += [pa.array(np.full(n, padded is side)) for padded in how.padded]
    if has_sign:
        columns.append(read_sign_column(batch))
    return columns


def read_sign_column(batch: pa.RecordBatch) -> pa.Array:
    """Return the signs of tuples; tuples of a stream without deletes have the sign 1."""
    if SIGN in batch.schema.names:
        return batch.column(SIGN)
    return pa.array(np.ones(batch.num_rows, np.int8))
