"""One unit of a two-stream join: it drops late tuples, probes, stores and expires, in the global order.

In the global order, epochs follow each other, and inside an epoch the part R1 of R comes first, then all of
S, then the rest R2 of R. Spark's epoch barrier replaces the punctuation of BiStream's order-consistent
protocol (section 3.2.3): when the blocks of an epoch have arrived, all earlier tuples have arrived too. R1, S
and R2 in turn probe the tuples of the other side that are stored by then, and are stored themselves. So every
pair meets exactly once: at the unit that stores one tuple and is probed by the other.

Pairs of tuples of the same epoch are the majority if epochs are long. If all of R came before S, these pairs
would all meet at the units that store R. Therefore R is cut by event time into stretches of
``SHARED_PERIODS`` archive periods (half a window by default), which belong to R1 and R2 alternately. R1 meets
S at the units of R, and R2 meets S at the units of S.

In a count window, each tuple has its own place in the order (``thetastream.engine.arrival``), and
the order is part of the condition: a stored tuple meets only tuples that arrived after it.
"""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches, RowFacts, concat
from thetastream.core.cancellation import cancel, cancel_matches, read_signs
from thetastream.core.columns import ARRIVAL, SEEN, SEQUENCE
from thetastream.core.errors import ThetastreamError
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import Numbers, drop_late, keep_passing, number_arrivals, read_times
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.matching import Residual, match
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.period_spans import SHARED_PERIODS
from thetastream.engine.store.probing import Candidates
from thetastream.engine.store.segment import MemoryStore, SegmentStore
from thetastream.engine.two_stream.query import Arrivals, Tuples, UnitSpec, UnitState, split_tuples
from thetastream.models.base import Model

FRESH_PERIOD = 1 << 12
"""The smallest number of tuples in a subindex over the new tuples of an epoch. Every probe searches every
subindex, so short ones are slow."""


class Unit:
    """One unit of a model, with its own state.

    Parameters
    ----------
    spec : UnitSpec
        The query.
    model : Model
        The model.
    slot : int
        The number of this unit.
    state : UnitState
        The state before this epoch, from the manifest.
    store : SegmentStore
        The store that holds the runs.
    """

    messages: Sequence[Message] = ()
    is_waiting = False
    counters_type: ClassVar[type[Counters]] = Counters
    """The counters that the unit fills."""

    def __init__(
        self, spec: UnitSpec, model: Model, slot: int, state: UnitState, store: SegmentStore
    ) -> None:
        self._spec = spec
        self._model = model
        self._slot = slot
        self._arrived = state.arrived or (0, 0)
        self._residual = Residual(spec.condition)
        self._keyed_by = spec.plans[Side.LEFT].condition
        self._indexes = {
            side: ChainedIndex(
                spec.describe_stored(side), [meta for meta in state.segments if meta.stream == side], store
            )
            for side in Side
        }
        self._new_deletes: dict[Side, list[pa.RecordBatch]] = {side: [] for side in Side}
        self.counters = self.counters_type()
        homes = [side for side in Side if model.counts(slot, side)]
        self.counters.list_streams(spec.condition.sides[side].alias for side in homes)

    @property
    def state(self) -> Any:
        """The current state."""
        return self.joined

    @property
    def joined(self) -> UnitState:
        """The current state of the join itself."""
        return UnitState([meta for index in self._indexes.values() for meta in index.segments], self._arrived)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the left and of the right tuples of its matches."""
        for matches in self.matches(inbox, clock):
            yield matches.columns

    def matches(self, inbox: Inbox, clock: Clock) -> Iterator[Matches]:
        """Run one epoch and yield its matches. Exhaust the iterator before you read ``state`` and
        ``counters``."""
        yield from self.join(inbox, clock)
        self.expire(clock)
        self.finish(inbox)

    def join(self, inbox: Inbox, clock: Clock) -> Iterator[Matches]:
        """Admit the tuples of an epoch, yield their matches, and store them."""
        if inbox.peers.arrived is not None:
            before = inbox.peers.arrived
            self._arrived = self._arrived[0] + before[0], self._arrived[1] + before[1]
        # 1. Drop late tuples.
        timely = {
            (side, role): self._admit(inbox, side, role, clock.late_us) for side in Side for role in Role
        }
        arrivals = self._arrange_by_number(timely) if self._model.sees_all else self._arrange_by_role(timely)
        # 2. Join.
        turns = self._join_in_parts if self._spec.counts is None else self._join_by_number
        yield from turns(*arrivals)

    def expire(self, clock: Clock) -> None:
        """Drop the stored tuples that no tuple of a later epoch can join."""
        for side in Side:
            # Models that see all tuples bring equal ones to several units.
            if self._spec.condition.sides[side].has_deletes and not self._model.sees_all:
                self._check_deletes(side, clock)
        for side, index in self._indexes.items():
            horizon = clock.watermark_us if self._spec.counts is None else self._arrived[side] - 1
            self.counters.expired += index.expire(horizon)
            index.archive(horizon)

    def _check_deletes(self, side: Side, clock: Clock) -> None:
        """Count the deletes without an insert that leave the state. If the stream is strict, refuse new ones.

        Raises
        ------
        ThetastreamError
            CHANGE_UNKNOWN_ROW.
        """
        index, spec = self._indexes[side], self._spec.condition.sides[side]
        interval = self._find_leaving(side, clock)
        if interval is not None:
            self.counters.unknown_deletes += index.count_unmatched(*interval)
        new, self._new_deletes[side] = self._new_deletes[side], []
        unmatched = index.find_unmatched(concat(new)) if new else None
        if unmatched is not None:
            (row,) = unmatched.select(spec.columns).slice(0, 1).to_pylist()
            values = ", ".join(map(reprlib.repr, row.values()))
            what = f"a row of {spec.alias!r} is deleted that was not inserted: ({values})"
            raise ThetastreamError("CHANGE_UNKNOWN_ROW", f"{what}; correct the source, or leave strict out")

    def _find_leaving(self, side: Side, clock: Clock) -> tuple[int | None, int] | None:
        """Return the interval (after, until] of event times that this epoch forgets, if there is one."""
        lifetime = self._spec.describe_stored(side).lifetime_us
        if clock.watermark_us is None or lifetime is None:
            return None
        return None if clock.late_us is None else clock.late_us - lifetime, clock.watermark_us - lifetime

    def finish(self, inbox: Inbox) -> None:
        """Write the new segments, and count the work of the epoch."""
        for index in self._indexes.values():
            index.write()
        segments = self.joined.segments
        self.counters.received = inbox.received
        self.counters.received_bytes = inbox.received_bytes
        self.counters.count_state(segments)
        if self._spec.is_ordered:
            self.counters.arrived = self._arrived[0], self._arrived[1]

    # Admission

    def _admit(self, inbox: Inbox, side: Side, role: Role, late_us: int | None) -> pa.RecordBatch | None:
        """Return the timely tuples of one side and role. Tuples to be stored are counted at their home.

        A tuple that is inserted and deleted in one epoch counts neither as timely nor as late.
        """
        batch = inbox.batch(side, role)
        if batch is None:
            return None
        is_counted = role.is_counted and self._model.counts(self._slot, side)
        spec = self._spec.condition.sides[side]
        # All units that get a tuple get its counterpart in the same epoch and role.
        batch = cancel(batch)
        batch = drop_late(batch, side, spec, late_us, self.counters if is_counted else None)
        return batch if batch.num_rows else None

    def _arrange_by_role(self, timely: dict[tuple[Side, Role], pa.RecordBatch | None]) -> list[Arrivals]:
        """Give the tuples the roles in which they were sent."""
        arrivals = []
        for side in Side:
            found = [batch for role in (Role.BOTH, Role.COPY) if (batch := timely[side, role]) is not None]
            if found:
                both = self._add_keys(side, concat(found))
                arrivals.append(Arrivals(both, both))
            else:
                probing, storing = (
                    self._add_keys(side, timely[side, role]) for role in (Role.PROBE, Role.STORE)
                )
                arrivals.append(Arrivals(probing, storing))
        return arrivals

    def _arrange_by_number(self, timely: dict[tuple[Side, Role], pa.RecordBatch | None]) -> list[Arrivals]:
        """Number the tuples in the order of arrival.

        All tuples probe. The model decides by their numbers which of them this unit stores. A unit of an
        older generation gets all tuples only to probe, and stores none.
        """
        stores = all(timely[side, Role.PROBE] is None for side in Side)
        batches = [timely[side, Role.BOTH if stores else Role.PROBE] for side in Side]
        left, right = (
            np.zeros(0, dtype=np.int64) if batch is None else read_times(batch, spec)
            for batch, spec in zip(batches, self._spec.condition.sides, strict=True)
        )
        numbers = self.number((left, right))
        arrivals = []
        for side, batch, mine in zip(Side, batches, numbers, strict=True):
            passing, sequence = (None, None) if batch is None else self._keep_passing(side, batch, mine)
            probing = self._add_keys(side, passing)
            storing = None
            if stores and probing is not None and sequence is not None:
                times = read_times(probing.payload, self._spec.condition.sides[side])
                storing = probing.take(self._model.keeps(self._slot, sequence, times))
            arrivals.append(Arrivals(probing, storing))
        return arrivals

    def number(self, times: tuple[Int64s, Int64s]) -> tuple[Numbers, ...]:
        """Number the tuples of an epoch in the order of arrival, given their event times."""
        numbers = number_arrivals(times, self._arrived)
        self._arrived = self._arrived[0] + len(times[0]), self._arrived[1] + len(times[1])
        return numbers

    def _keep_passing(
        self, side: Side, batch: pa.RecordBatch, numbers: Numbers
    ) -> tuple[pa.RecordBatch, Int64s]:
        """Select the tuples that pass the filters, in order of arrival, with their numbers as columns."""
        batch, (order, seen_by_stream) = keep_passing(batch, numbers)
        sequence, seen = seen_by_stream[side], seen_by_stream[side.other]
        batch = batch.take(order)
        if self._spec.counts is not None:
            batch = batch.append_column(SEQUENCE, pa.array(sequence))
            batch = batch.append_column(SEEN, pa.array(seen))
        if self._spec.is_ordered:
            batch = batch.append_column(ARRIVAL, pa.array(sequence + seen))
        return batch, sequence

    def _add_keys(self, side: Side, batch: pa.RecordBatch | None) -> Tuples | None:
        if batch is None or not batch.num_rows:
            return None
        return Tuples(RowFacts(batch), encode_key_rows(side, self._keyed_by, batch))

    # Joining

    def _join_in_parts(self, left: Arrivals, right: Arrivals) -> Iterator[Matches]:
        first, second = self._split_arrivals(left)
        yield from self._probe_then_store(Side.LEFT, first)
        yield from self._probe_then_store(Side.RIGHT, right)
        yield from self._probe_then_store(Side.LEFT, second)

    def _join_by_number(self, left: Arrivals, right: Arrivals) -> Iterator[Matches]:
        # The window condition decides which of two tuples came first, so every tuple may probe every other
        # tuple. Only tuples that are still in the window at the end of the epoch are stored.
        assert self._spec.counts is not None
        both = ((Side.LEFT, left), (Side.RIGHT, right))
        fresh = {side: self._index_fresh(side, arrivals.storing) for side, arrivals in both}
        for side, arrivals in both:
            yield from self._probe(side, arrivals.probing, fresh[side.other])
        for side, arrivals in both:
            oldest = self._arrived[side] - self._spec.counts[side]
            if arrivals.storing is not None:
                self._store(side, arrivals.storing.take(arrivals.storing.rows[:, 0] >= oldest))

    def _index_fresh(self, side: Side, tuples: Tuples | None) -> ChainedIndex:
        """Index the new tuples of an epoch in memory."""
        spec = self._spec.describe_stored(side)
        period = max(spec.archive_period_us or 0, FRESH_PERIOD)
        index = ChainedIndex(replace(spec, archive_period_us=period), [], MemoryStore())
        if tuples is not None:
            index.insert(tuples.facts.batch, tuples.rows, tuples.places)
        return index

    def _probe_then_store(self, side: Side, arrivals: Arrivals) -> Iterator[Matches]:
        yield from self._probe(side, arrivals.probing)
        self._store(side, arrivals.storing)

    def _split_arrivals(self, arrivals: Arrivals) -> tuple[Arrivals, Arrivals]:
        """Split R into R1 and R2 by event time. Every unit that sees a tuple splits in the same way."""
        if self._spec.archive_period_us is None:
            return arrivals, Arrivals(None, None)
        stretch = self._spec.archive_period_us * SHARED_PERIODS
        halves = [split_tuples(tuples, stretch) for tuples in arrivals]
        first, second = (Arrivals(*half) for half in zip(*halves, strict=True))
        return first, second

    def _store(self, side: Side, tuples: Tuples | None) -> None:
        if tuples is not None:
            self._indexes[side].insert(tuples.facts.batch, tuples.rows, tuples.places)
            self.counters.stored += len(tuples.rows)
            if self._spec.condition.sides[side].rules.is_strict:
                payload = tuples.payload
                signs = read_signs(payload)
                assert signs is not None
                self._new_deletes[side].append(payload.take(np.flatnonzero(signs < 0)))

    def _probe(self, side: Side, tuples: Tuples | None, *fresh: ChainedIndex) -> Iterator[Matches]:
        """Find partners among the stored tuples of the other side and among the ``fresh`` tuples."""
        if tuples is None:
            return
        self.counters.probed += len(tuples.rows)
        has_one = self._needs_one(side)
        indexes = (self._indexes[side.other], *fresh)
        probed = (
            index.probe(tuples.rows, tuples.facts, places=tuples.places, has_one=has_one) for index in indexes
        )
        matches = self._match(side, tuples.facts.batch, chain.from_iterable(probed))
        deletes = self._gather_deletes(side.other)
        yield from matches if deletes is None else cancel_matches(matches, side.other, deletes)

    def _gather_deletes(self, side: Side) -> pa.RecordBatch | None:
        """Gather the stored deletes of a side if they are many, with the columns that matches have of it."""
        return self._indexes[side].gather_deletes(self._columns[side])

    def _needs_one(self, side: Side) -> bool:
        """Whether one partner of each probing tuple of ``side`` is enough."""
        return False

    def _match(
        self, side: Side, payload: pa.RecordBatch, candidates: Iterable[Candidates]
    ) -> Iterator[Matches]:
        """Yield the matches among the candidates that ``payload``, tuples of ``side``, has found."""
        yield from match(side, payload, candidates, self._residual, self._columns, self.counters)

    @property
    def _columns(self) -> tuple[Sequence[str], Sequence[str]]:
        left, right = (list(side.columns) for side in self._spec.condition.sides)
        arrival = [ARRIVAL] * self._spec.is_ordered
        return left + arrival, right + arrival
