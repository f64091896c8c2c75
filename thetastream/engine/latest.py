"""The engine that turns upserts into changes: it knows the latest row of each key.

    upsert of key k with row r  ->  delete of the row that k had, insert of r

Units are chosen by the hash of the key. A unit keeps the latest row of each of its keys as a tuple of sign 1.
When a row is replaced, a tuple of sign -1 is stored beside it, and both cancel each other when segments are
merged (``thetastream.core.cancellation``). So the row of a key is what the net tuples of the key leave.

Only the last row of a key in an epoch counts. A row whose sequence is smaller than that of the row of its key
is older, and is left out. With an event time, a row is forgotten when the watermark has passed it: its delete
would be late then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import RowFacts, concat
from thetastream.core.cancellation import find_net, list_columns, read_signs
from thetastream.core.columns import SIGN
from thetastream.core.condition import Condition, Equality, SideSpec
from thetastream.core.equal_rows import compare_rows, hash_rows, number_rows, take_rows
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import read_times
from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.store.box import IndexPlan, StoredStream, encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import SegmentMeta, SegmentStore
from thetastream.index import IndexSpec
from thetastream.index.hash import Hash
from thetastream.models.matrix import Matrix


@dataclass
class LatestState:
    """The state that a unit keeps from epoch to epoch."""

    segments: list[SegmentMeta] = field(default_factory=list)


@dataclass(frozen=True)
class LatestSpec:
    """The fixed properties of a stream of upserts. Picklable."""

    side: SideSpec
    """The columns of the stream. Its only key is the hash of the key columns."""
    key: tuple[str, ...]
    """The payload columns that identify a row."""
    model: Matrix
    """A matrix of one column, which sends each tuple to one unit by its hash."""
    sequence: str | None = None
    """The column by which the rows of a key are ordered. None stands for the order in which they arrive."""
    deleted: str | None = None
    """The column that says whether the key has no row any more. None if keys are never deleted."""
    period_us: int | None = None
    """Event time of one subindex. None without an event time."""

    state_type: ClassVar[type[LatestState]] = LatestState
    has_messages: ClassVar[bool] = False
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = "its units keep rows by key"

    @property
    def n_units(self) -> int:
        """The number of units."""
        return self.model.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether the stream has an event time."""
        return self.side.time is not None

    @property
    def router(self) -> Router:
        """The router of the model."""
        return Router(self.model)

    @property
    def stored(self) -> StoredStream:
        """How rows are stored: by the hash of their key, until the watermark has passed them."""
        spec = replace(self.side, computed=(*self.side.computed, SIGN))
        condition = Condition((spec, spec), (Equality(0, 0),))
        plan = IndexPlan(condition, Side.LEFT, IndexSpec(Hash(), (0,)))
        return StoredStream(Side.LEFT, plan, self.period_us, None if self.period_us is None else 0)

    def with_model(self, model: Matrix) -> "LatestSpec":
        """Return the same stream with another number of units."""
        return replace(self, model=model)

    def open(self, slot: int, state: LatestState, open_store: OpenStore) -> "LatestUnit":
        """Open the unit ``slot``."""
        return LatestUnit(self, state, open_store({Side.LEFT: self.stored.plan}))


class LatestUnit:
    """One unit, with the latest rows of its keys."""

    messages: Sequence[Message] = ()
    is_waiting = False

    def __init__(self, spec: LatestSpec, state: LatestState, store: SegmentStore) -> None:
        self._spec = spec
        self._stored = spec.stored
        self._index = ChainedIndex(self._stored, state.segments, store)
        self.counters = Counters()
        self.counters.list_streams([spec.side.alias])

    @property
    def state(self) -> LatestState:
        """The current state."""
        return LatestState(self._index.segments)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the rows that are deleted and inserted, and their sign."""
        batch = inbox.batch(Side.LEFT, Role.BOTH)
        if batch is not None:
            yield from self._follow(batch, clock.late_us)
        self.counters.expired = self._index.expire(clock.watermark_us)
        self._index.archive(clock.watermark_us)
        self._index.write()
        self.counters.received = inbox.received
        self.counters.received_bytes = inbox.received_bytes
        self.counters.count_state(self._index.segments)

    def _follow(self, batch: pa.RecordBatch, late_us: int | None) -> Iterator[list[pa.Array]]:
        # 1. Choose the last row of each key, and find the row that the key has had.
        self._count(batch)
        new = batch.take(self._choose_last(batch))
        old, has_old = self._find_current(new, late_us)
        # 2. Leave out older rows. A row that has not changed has no results.
        is_gone = np.zeros(len(new), dtype=np.bool_)
        if self._spec.deleted is not None:
            is_gone = read_mask(new.column(self._spec.deleted))
        is_newer = ~self._find_older(new, old, has_old)
        is_same = has_old & ~is_gone & self._find_same(new, old)
        # 3. Emit deletes and inserts, and store them.
        deletes, inserts = np.flatnonzero(is_newer & has_old), np.flatnonzero(is_newer & ~is_gone)
        for rows, chosen, sign in ((old, deletes, -1), (new, inserts, 1)):
            changed = rows.select(self._spec.side.columns).take(chosen[~is_same[chosen]])
            if len(changed):
                self.counters.matched += len(changed)
                yield [*changed.columns, make_signs(len(changed), sign)]
        self._store(old.take(deletes), new.take(inserts))

    def _count(self, batch: pa.RecordBatch) -> None:
        times = read_times(batch, self._spec.side)
        known = times[times < np.iinfo(np.int64).max]
        newest_us = int(known.max()) if self._spec.has_event_time and len(known) else None
        self.counters.admit(Side.LEFT, self._spec.side.alias, len(batch), 0, newest_us)

    def _choose_last(self, batch: pa.RecordBatch) -> Int64s:
        """Return the position of the last row of each key, by the sequence and then by arrival."""
        keys = number_rows([batch.column(name) for name in self._spec.key])
        if self._spec.sequence is None:
            last = np.zeros(int(keys.max(initial=-1)) + 1, dtype=np.int64)
            np.maximum.at(last, keys, np.arange(len(keys)))
            return np.sort(last)
        # Most keys come once. The order decides among the rows of the others.
        is_alone = np.bincount(keys)[keys] == 1
        alone, others = np.flatnonzero(is_alone), np.flatnonzero(~is_alone)
        keys = keys[others]
        sequence = batch.column(self._spec.sequence).take(pa.array(others))
        # A row without a sequence comes before all others.
        columns = {
            "key": pa.array(keys),
            "known": sequence.is_valid(),
            "sequence": sequence,
            "place": pa.array(others),
        }
        order = pc.sort_indices(pa.table(columns), [(name, "ascending") for name in columns]).to_numpy()
        is_last = np.diff(keys[order], append=-1) != 0
        found: Int64s = np.sort(np.concatenate([alone, others[order[is_last]]]))
        return found

    def _find_current(self, new: pa.RecordBatch, late_us: int | None) -> tuple[pa.RecordBatch, Mask]:
        """Return the present row of each key, and whether there is one. Other rows are arbitrary."""
        rows = encode_key_rows(Side.RIGHT, self._stored.plan.condition, new)
        owners, found = [], []
        for one in self._index.probe(rows, RowFacts(new)):
            self.counters.candidates += one.n_compared
            owners.append(one.probes)
            found.append(one.payload.take(one.stored))
        self.counters.probed += len(new)
        has_old = np.zeros(len(new), dtype=np.bool_)
        if not found:
            return new, has_old
        # 1. Leave out keys of equal hashes, and rows that are forgotten. A row and its delete have one time.
        owner, current = np.concatenate(owners), concat(found)
        places, names = pa.array(owner), self._spec.key
        is_kept = compare_rows(
            [new.column(name).take(places) for name in names], [current.column(name) for name in names]
        )
        if late_us is not None and self._spec.has_event_time:
            is_kept &= read_times(current, self._spec.side) > late_us
        # 2. What the deletes leave is the row of the key.
        current, owner = current.filter(pa.array(is_kept)), owner[is_kept]
        rest = _find_rests(current, owner)
        if not len(rest):
            return new, has_old
        has_old[owner[rest]] = True
        positions = np.zeros(len(new), dtype=np.int64)
        positions[owner[rest]] = rest
        return current.take(pa.array(positions)), has_old

    def _find_older(self, new: pa.RecordBatch, old: pa.RecordBatch, has_old: Mask) -> Mask:
        """Find the rows that are older than the present row of their key.

        The order is that of ``_choose_last``: NULL comes before all values, and NaN behind them.
        """
        name = self._spec.sequence
        if name is None:
            return np.zeros(len(new), dtype=np.bool_)
        mine, theirs = new.column(name), old.column(name)
        is_older = read_mask(pc.less(mine, theirs)) | read_mask(pc.and_(mine.is_null(), theirs.is_valid()))
        if pa.types.is_floating(mine.type):
            is_older |= read_mask(pc.and_(pc.invert(pc.is_nan(mine)), pc.is_nan(theirs)))
        return has_old & is_older

    def _find_same(self, new: pa.RecordBatch, old: pa.RecordBatch) -> Mask:
        """Find the rows that equal the present row of their key."""
        names = self._spec.side.columns
        return compare_rows([new.column(name) for name in names], [old.column(name) for name in names])

    def _store(self, deletes: pa.RecordBatch, inserts: pa.RecordBatch) -> None:
        # Both in one segment: each later probe searches all segments.
        names = [*self._spec.side.columns, *self._spec.side.computed]
        names = [name for name in names if name != self._spec.deleted]
        signs = pa.concat_arrays([make_signs(len(deletes), -1), make_signs(len(inserts), 1)])
        payload = concat([deletes.select(names), inserts.select(names)]).append_column(SIGN, signs)
        self._index.insert(payload, encode_key_rows(Side.LEFT, self._stored.plan.condition, payload))
        self.counters.stored += len(payload)


def _find_rests(tuples: pa.RecordBatch, owner: Int64s) -> Int64s:
    """Find the one insert of each key that its deletes leave, if they leave one.

    ``owner`` is the number of the key of each tuple. The hashes of equal tuples of opposite sign add up to 0,
    so the sum of a key is the hash of the tuple that is left.
    """
    signs, columns = read_signs(tuples), list_columns(tuples)
    assert signs is not None
    is_left = np.bincount(owner, weights=signs)[owner] > 0
    hashes, sums = hash_rows(columns), np.zeros(int(owner.max(initial=-1)) + 1, dtype=np.uint64)
    np.add.at(sums, owner, np.where(signs > 0, hashes, np.uint64(0) - hashes))
    found = np.flatnonzero(is_left & (signs > 0) & (hashes == sums[owner]))
    # A tuple that other ones cancel may have the hash of the one that is left.
    chosen = np.zeros(len(sums), dtype=np.int64)
    chosen[owner[found]] = found
    if compare_rows(take_rows(columns, found), take_rows(columns, chosen[owner[found]])).all():
        return found
    left = find_net([pa.array(owner), *columns], signs)
    assert left is not None
    return left[signs[left] > 0]


def make_signs(n: int, sign: int) -> pa.Array:
    """Make a column of equal signs."""
    return pa.array(np.full(n, sign, dtype=np.int8))


def read_mask(values: pa.Array) -> Mask:
    """Read booleans; NULL counts as false."""
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask
