"""One unit of any model: late filter, probe, store, expire, in the global order.

The global order is epochs in sequence and, inside an epoch, R1 before all of S before R2. Spark's
epoch barrier is the punctuation of BiStream's order-consistent protocol (section 3.2.3): when an
epoch's blocks are here, all earlier tuples are. Each part in turn probes the other side as stored by
then and is stored itself, so every pair meets exactly once, at the unit that stores one and is probed
by the other.

Pairs inside one epoch, most of all pairs when epochs are long, would all meet at the units that
store R if R came first. R is therefore cut by event time, in stretches of ``SHARED_PERIODS`` archive
periods, by default half a window: R1 meets S at the units of R, R2 at those of S.

In a count window the order is finer, tuple by tuple (``thetastream.joiner.arrival``), and part of the
condition: a stored tuple meets only what came after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.condition import Condition, IndexSpec, Key
from thetastream.joiner.arrival import ARRIVAL, SEEN, SEQUENCE, Numbers, counted, number
from thetastream.joiner.box import Plan, key_rows
from thetastream.joiner.chain import SHARED_PERIODS, Candidates, ChainedIndex, ChainSpec, joinable_us
from thetastream.joiner.clock import Clock
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.refine import Measured
from thetastream.joiner.residual import Residual
from thetastream.joiner.segment import MemoryStore, SegmentMeta, SegmentStore
from thetastream.keys import Int64s, encode
from thetastream.models.base import Model
from thetastream.types import Role, Side

PASSES = "p"
"""Block column of tuples that are numbered before they are filtered: NULL for those that do not pass."""
SUBINDEXES_PER_WINDOW = 10
"""Archive periods per window by default: state outlives its window by a tenth."""
FRESH_PERIOD = 1 << 12
"""Tuples of a subindex of what came in the epoch, if that is more: short ones cost each probe a search."""


@dataclass
class Counters:
    """What one unit did in one epoch."""

    left: int = 0
    right: int = 0
    """Tuples of each stream that were not late; over all units each is counted once."""
    received: int = 0
    received_bytes: int = 0
    """What the exchange brought: tuples, copies included, and bytes of their blocks."""
    stored: int = 0
    probed: int = 0
    matched: int = 0
    forwarded: int = 0
    forwarded_bytes: int = 0
    """What goes on in the next epoch, a ring's partial results or a chain's tuples; bytes of all messages."""
    waiting: int = 0
    """Tuples that are stored but have not begun to look for partners, for want of room in flight."""
    late: int = 0
    expired: int = 0
    candidates: int = 0
    segments: int = 0
    held: int = 0
    """Stored tuples at the end of the epoch, copies included."""
    mlv_bytes: int = 0
    """Memory load volume: bytes of the stored tuples and their index."""
    state_bytes: int = 0
    """Bytes of the stored tuples as the durable store holds them."""
    emitted_bytes: int = 0
    """Bytes of the rows that leave the unit, as Arrow."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """The other streams in the order in which an alias' tuples look for partners, if orders are refined."""

    def count_state(self, segments: Sequence[SegmentMeta]) -> None:
        """What is stored at the end of the epoch."""
        self.segments = len(segments)
        self.held = sum(meta.n_rows for meta in segments)
        self.mlv_bytes = sum(meta.nbytes for meta in segments)
        self.state_bytes = sum(meta.durable_bytes for meta in segments)

    def admit(self, side: Side, n_timely: int, n_late: int) -> None:
        """Count tuples of one stream where they are at home, so that each is counted once."""
        self.left += n_timely if side is Side.LEFT else 0
        self.right += n_timely if side is Side.RIGHT else 0
        self.late += n_late


COUNTS = tuple(counter.name for counter in fields(Counters) if counter.name != "order")
"""The counters that are numbers, and add up over units."""


class Matches(NamedTuple):
    """Joined tuples: row i of ``left`` with row i of ``right``."""

    left: pa.RecordBatch
    right: pa.RecordBatch


@dataclass(frozen=True)
class UnitSpec:
    """All that a unit needs to know of the query; picklable."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None
    counts: tuple[int, int] | None = None
    """Count windows: how many tuples of left and right stay joinable."""
    is_ordered: bool = False
    """Whether matches carry the places of both tuples in the order of arrival."""

    @cached_property
    def plans(self) -> dict[int, Plan]:
        """How stored tuples of each side are indexed and checked."""
        conditions = [self.condition] * 2 if self.counts is None else counted(self.condition, self.counts)
        return {side: Plan(conditions[side], side, self.indexes[side]) for side in Side}

    def chain(self, stored: Side) -> ChainSpec:
        """What is fixed of the tuples stored of one side; in a count window times are numbers of tuples."""
        plan = self.plans[stored]
        lifetime = joinable_us(plan.condition.window, stored)
        if self.counts is not None:
            period = -(-self.counts[stored] // SUBINDEXES_PER_WINDOW)
            return ChainSpec(stored, plan, period, lifetime)
        # What never expires is merged without regard to time.
        return ChainSpec(stored, plan, None if lifetime is None else self.archive_period_us, lifetime)


class Waiting(NamedTuple):
    """New tuples of one stream and epoch that have not begun to look for partners; their block is stored."""

    id: str
    stream: int
    since_us: int | None
    """Watermark of the epoch in which they came."""
    n_rows: int
    done: int
    """How many of them are under way already, from the first on."""


@dataclass
class UnitState:
    """What a unit remembers from epoch to epoch."""

    segments: list[SegmentMeta] = field(default_factory=list)
    arrived: tuple[int, ...] = ()
    """Tuples of each stream so far, at units that see all."""
    mailbox: str | None = None
    """Which mailbox its messages are in, if it sends any."""
    waiting: list[Waiting] = field(default_factory=list)
    admitted: list[tuple[int, int]] = field(default_factory=list)
    """Epochs and how many tuples began to look for partners in each, of those that may be under way."""
    measured: Measured | None = None
    """What is known of the hops, if their orders are refined."""
    chained: dict[str, Any] = field(default_factory=dict)
    """What a worker of a handshake chain knows of its neighbours; plain values."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the manifest."""
        return {
            **vars(self),
            "segments": [meta.as_json() for meta in self.segments],
            "measured": None if self.measured is None else self.measured.as_json(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "UnitState":
        """Inverse of ``as_json``."""
        return cls(
            [SegmentMeta.from_json(meta) for meta in values["segments"]],
            tuple(int(n) for n in values["arrived"]),
            values["mailbox"],
            [Waiting(*fields) for fields in values["waiting"]],
            [(int(epoch), int(n)) for epoch, n in values["admitted"]],
            None if values["measured"] is None else Measured.from_json(values["measured"]),
            values["chained"],
        )


class Tuples(NamedTuple):
    """Tuples that take part in an epoch, with their key rows."""

    payload: pa.RecordBatch
    rows: Int64s

    def take(self, mask: npt.NDArray[np.bool_]) -> "Tuples":
        """Those where ``mask`` is true."""
        kept = np.flatnonzero(mask)
        return Tuples(self.payload.take(kept), self.rows[kept])


class Arrivals(NamedTuple):
    """What one stream brings a unit in an epoch."""

    probing: Tuples | None
    storing: Tuples | None


class Unit:
    """A slot of a model with its own state.

    Parameters
    ----------
    spec : UnitSpec
        The query.
    model : Model
        What this unit is a slot of.
    slot : int
        Which.
    state : UnitState
        From the manifest: the state before this epoch.
    store : SegmentStore
        Where runs live.
    """

    def __init__(
        self, spec: UnitSpec, model: Model, slot: int, state: UnitState, store: SegmentStore
    ) -> None:
        self._spec = spec
        self._model = model
        self._slot = slot
        self._arrived = state.arrived or (0, 0)
        self._residual = Residual(spec.condition)
        self._keyed_by = spec.plans[Side.LEFT].condition
        self._chains = {
            side: ChainedIndex(
                spec.chain(side), [meta for meta in state.segments if meta.stream == side], store
            )
            for side in Side
        }
        self.counters = Counters()

    @property
    def state(self) -> UnitState:
        """State after what has been done so far."""
        return UnitState([meta for index in self._chains.values() for meta in index.segments], self._arrived)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[Matches]:
        """Run one epoch; exhaust the iterator, then read ``state`` and ``counters``.

        Parameters
        ----------
        inbox : Inbox
            This epoch's blocks.
        clock : Clock
        """
        # 1. Admit what is not late.
        timely = {
            (side, role): self._timely(inbox, side, role, clock.late_us) for side in Side for role in Role
        }
        arrivals = self._numbered(timely) if self._model.sees_all else self._placed(timely)
        # 2. Join.
        turns = self._turns if self._spec.counts is None else self._turns_by_number
        yield from turns(*arrivals)
        # 3. Expire what no tuple of a later epoch can join.
        for side, index in self._chains.items():
            horizon = clock.watermark_us if self._spec.counts is None else self._arrived[side] - 1
            self.counters.expired += index.expire(horizon)
            index.archive(horizon)
        self._count(inbox)

    def _count(self, inbox: Inbox) -> None:
        segments = self.state.segments
        self.counters.received = inbox.received
        self.counters.received_bytes = inbox.received_bytes
        self.counters.count_state(segments)

    # Admission

    def _timely(self, inbox: Inbox, side: Side, role: Role, late_us: int | None) -> pa.RecordBatch | None:
        """The tuples of one side and role that are not late, counted."""
        is_home = self._model.is_home(self._slot, side)
        return admitted(
            inbox, side, role, self._spec.condition.sides[side].time, late_us, self.counters, is_home
        )

    def _placed(self, timely: dict[tuple[Side, Role], pa.RecordBatch | None]) -> list[Arrivals]:
        """Tuples in the roles they were sent in."""
        arrivals = []
        for side in Side:
            tuples = {role: self._keyed(side, timely[side, role]) for role in Role}
            both = tuples[Role.BOTH]
            arrivals.append(Arrivals(both or tuples[Role.PROBE], both or tuples[Role.STORE]))
        return arrivals

    def _numbered(self, timely: dict[tuple[Side, Role], pa.RecordBatch | None]) -> list[Arrivals]:
        """Tuples in the order of arrival; the model says from their numbers which of them are stored here."""
        batches = [timely[side, Role.BOTH] for side in Side]
        keys = [side.time for side in self._spec.condition.sides]
        left, right = (
            np.zeros(0, dtype=np.int64) if batch is None else _times(batch, key)
            for batch, key in zip(batches, keys, strict=True)
        )
        numbers = number((left, right), self._arrived)
        self._arrived = self._arrived[0] + len(left), self._arrived[1] + len(right)
        arrivals = []
        for side, batch, mine in zip(Side, batches, numbers, strict=True):
            passing, sequence = (None, None) if batch is None else self._passing(batch, mine)
            probing = self._keyed(side, passing)
            storing = None
            if probing is not None and sequence is not None:
                storing = probing.take(self._model.keeps(self._slot, sequence, probing.rows[:, 0]))
            arrivals.append(Arrivals(probing, storing))
        return arrivals

    def _passing(self, batch: pa.RecordBatch, numbers: Numbers) -> tuple[pa.RecordBatch, Int64s]:
        """In order of arrival the tuples that pass the filters, with their numbers as columns."""
        order, sequence, seen = numbers
        if PASSES in batch.schema.names:
            passes = batch.column(PASSES).is_valid().to_numpy(zero_copy_only=False)[order]
            order, sequence, seen = (array[passes] for array in numbers)
            batch = batch.drop_columns([PASSES])
        batch = batch.take(order)
        if self._spec.counts is not None:
            batch = batch.append_column(SEQUENCE, pa.array(sequence))
            batch = batch.append_column(SEEN, pa.array(seen))
        if self._spec.is_ordered:
            batch = batch.append_column(ARRIVAL, pa.array(sequence + seen))
        return batch, sequence

    def _keyed(self, side: Side, batch: pa.RecordBatch | None) -> Tuples | None:
        if batch is None or not batch.num_rows:
            return None
        return Tuples(batch, key_rows(side, self._keyed_by, batch))

    # Turns

    def _turns(self, left: Arrivals, right: Arrivals) -> Iterator[Matches]:
        first, second = self._halves(left)
        yield from self._turn(Side.LEFT, first)
        yield from self._turn(Side.RIGHT, right)
        yield from self._turn(Side.LEFT, second)

    def _turns_by_number(self, left: Arrivals, right: Arrivals) -> Iterator[Matches]:
        # Windows say which of two tuples came first, so all may probe all. Only what the epoch leaves in its
        # window is kept.
        assert self._spec.counts is not None
        both = ((Side.LEFT, left), (Side.RIGHT, right))
        fresh = {side: self._index_of(side, arrivals.storing) for side, arrivals in both}
        for side, arrivals in both:
            yield from self._probe(side, arrivals.probing, fresh[side.other])
        for side, arrivals in both:
            oldest = self._arrived[side] - self._spec.counts[side]
            if arrivals.storing is not None:
                self._store(side, arrivals.storing.take(arrivals.storing.rows[:, 0] >= oldest))

    def _index_of(self, side: Side, tuples: Tuples | None) -> ChainedIndex:
        """An epoch's tuples, in memory."""
        spec = self._spec.chain(side)
        period = max(spec.archive_period_us or 0, FRESH_PERIOD)
        index = ChainedIndex(replace(spec, archive_period_us=period), [], MemoryStore())
        if tuples is not None:
            index.insert(tuples.payload, tuples.rows)
        return index

    def _turn(self, side: Side, arrivals: Arrivals) -> Iterator[Matches]:
        yield from self._probe(side, arrivals.probing)
        self._store(side, arrivals.storing)

    def _halves(self, arrivals: Arrivals) -> tuple[Arrivals, Arrivals]:
        """R1 and R2: stretches of event time in turn, the same for every unit that sees a tuple."""
        if self._spec.archive_period_us is None:
            return arrivals, Arrivals(None, None)
        stretch = self._spec.archive_period_us * SHARED_PERIODS
        halves = [_halves(tuples, stretch) for tuples in arrivals]
        first, second = (Arrivals(*half) for half in zip(*halves, strict=True))
        return first, second

    def _store(self, side: Side, tuples: Tuples | None) -> None:
        if tuples is not None:
            self._chains[side].insert(tuples.payload, tuples.rows)
            self.counters.stored += len(tuples.rows)

    def _probe(self, side: Side, tuples: Tuples | None, *fresh: ChainedIndex) -> Iterator[Matches]:
        """Partners among the stored tuples of the other side, and among ``fresh`` ones."""
        if tuples is None:
            return
        payload, rows = tuples
        self.counters.probed += len(rows)
        width = payload.nbytes / len(rows)
        probed = (index.probe(rows, width) for index in (self._chains[side.other], *fresh))
        candidates = chain.from_iterable(probed)
        yield from meet(side, payload, candidates, self._residual, self._columns, self.counters)

    @property
    def _columns(self) -> tuple[Sequence[str], Sequence[str]]:
        left, right = (list(side.columns) for side in self._spec.condition.sides)
        arrival = [ARRIVAL] * self._spec.is_ordered
        return left + arrival, right + arrival


def meet(
    side: Side,
    payload: pa.RecordBatch,
    candidates: Iterable[Candidates],
    residual: Residual,
    columns: tuple[Sequence[str], Sequence[str]],
    counters: Counters,
) -> Iterator[Matches]:
    """What becomes of candidates that ``payload``, probing tuples of ``side``, has found; counted."""
    for found, partner, stored, n_candidates in candidates:
        counters.candidates += n_candidates
        found, stored = residual.keep(side, payload, found, partner, stored)
        if not len(found):
            continue
        counters.matched += len(found)
        mine = payload.select(columns[side]).take(found)
        theirs = partner.select(columns[side.other]).take(stored)
        yield Matches(mine, theirs) if side is Side.LEFT else Matches(theirs, mine)


def admitted(
    inbox: Inbox,
    side: Side,
    role: Role,
    time: Key | None,
    late_us: int | None,
    counters: Counters,
    is_home: bool,
) -> pa.RecordBatch | None:
    """The tuples of one side and role that are not late; ``is_home``: those to be stored are counted here."""
    batch = inbox.batch(side, role)
    if batch is None:
        return None
    n_rows = batch.num_rows
    batch = timely(batch, time, late_us)
    if is_home and role is not Role.PROBE:
        counters.admit(side, batch.num_rows, n_rows - batch.num_rows)
    return batch if batch.num_rows else None


def timely(batch: pa.RecordBatch, time: Key | None, late_us: int | None) -> pa.RecordBatch:
    """The tuples that are not late: their event time is after the watermark of the epoch before."""
    if late_us is None or time is None:
        return batch
    is_timely = _times(batch, time) > late_us
    return batch if is_timely.all() else batch.take(np.flatnonzero(is_timely))


def _times(batch: pa.RecordBatch, time: Key | None) -> Int64s:
    if time is None:
        return np.zeros(batch.num_rows, dtype=np.int64)
    return encode(batch.column(time.column), time.domain)


def _halves(tuples: Tuples | None, stretch: int) -> tuple[Tuples | None, Tuples | None]:
    if tuples is None:
        return None, None
    second = (tuples.rows[:, 0] // stretch) % 2 == 1
    if not second.any():
        return tuples, None
    return (None, tuples) if second.all() else (tuples.take(~second), tuples.take(second))
