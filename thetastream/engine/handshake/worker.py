"""One worker of the handshake chain, which handles letters and new tuples.

In an epoch, a worker receives the letters of both neighbours, in the order in which each neighbour sent them.
The workers at the ends of the chain also receive new tuples. The protocol
(``thetastream.engine.handshake.protocol``) gives instructions, and this module applies them to tuples: it
joins, stores and forwards them. A letter is delivered in the next epoch, so a tuple moves by one worker per
epoch.

If a newer chain stores the new tuples, all workers of this one receive them, and join them with what they
store. After the letters of an epoch are read, each stored tuple is at one worker, apart from copies. So each
new tuple meets it once. The worker forwards no blocks any more. It goes on with expired tuples and silence,
until all of its own pairs have met.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import Matches, RowFacts, concat, gather
from thetastream.core.columns import END, FIRST, NUMBER
from thetastream.core.keys import HIGHEST
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import drop_late
from thetastream.engine.clock import Clock
from thetastream.engine.counters import SendingCounters
from thetastream.engine.handshake.block_size import average_work, choose_block
from thetastream.engine.handshake.instructions import (
    Drop,
    Group,
    HandshakeMessage,
    Instruction,
    Join,
    MarkProbed,
    Send,
    StoreTuples,
    TupleBlk,
    needs_tuples,
    sort_letters,
)
from thetastream.engine.handshake.protocol import Protocol
from thetastream.engine.handshake.query import COPIES, HandshakeQuery, HandshakeState
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.matching import Residual, match
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import SegmentMeta, SegmentStore


class HandshakeWorker:
    """One worker of the chain, with its own state.

    Parameters
    ----------
    spec : HandshakeQuery
        The query.
    place : int
        The place of this worker, counted from the left.
    state : HandshakeState
        The state before this epoch, from the manifest.
    store : SegmentStore
        The store that holds the runs.
    """

    def __init__(self, spec: HandshakeQuery, place: int, state: HandshakeState, store: SegmentStore) -> None:
        self._spec = spec
        self._place = place
        self._store = store
        self._arrived = list(state.arrived)
        self._known = state.neighbourhood
        self._residual = Residual(spec.condition)
        left, right = (side.columns for side in spec.condition.sides)
        self._columns = (left, right)
        streams = sorted({*Group, *self._known.copies, *(meta.stream for meta in state.segments)})
        self._stored = {
            stream: ChainedIndex(
                spec.describe_stored(stream),
                [meta for meta in state.segments if meta.stream == stream],
                self._store,
            )
            for stream in streams
        }
        self.block = choose_block(spec.model.block, spec.model.alpha, self._known.measured)
        threshold = spec.model.forward_threshold
        self._protocol = Protocol(
            place,
            spec.model.workers,
            self.block if threshold is None else threshold,
            self.block,
            self._known.remembered,
        )
        self._slots: Sequence[int] = range(spec.model.workers)
        self._has_left = False
        self.sent: list[tuple[int, HandshakeMessage]] = []
        """The letters for the next epoch with the places of their receivers, in the order of sending."""
        self.counters = SendingCounters()
        entering = [side for side in Side if spec.model.end(side) == place]
        self.counters.list_streams(spec.condition.sides[side].alias for side in entering)

    @property
    def state(self) -> HandshakeState:
        """The state after the epoch."""
        segments = [meta for index in self._stored.values() for meta in index.segments]
        return HandshakeState(segments, (self._arrived[0], self._arrived[1]), self._known)

    @property
    def messages(self) -> list[Message]:
        """The letters for the next epoch, as messages of the engine protocol."""
        return [letter.to_message(self._slots[to]) for to, letter in self.sent]

    @property
    def is_waiting(self) -> bool:
        """Whether the worker needs another epoch even if no new tuples arrive."""
        return self._known.has_news

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the left and of the right tuples of its matches."""
        for matches in self._matches(inbox, clock):
            yield matches.columns

    def _matches(self, inbox: Inbox, clock: Clock) -> Iterator[Matches]:
        # 1. Read the letters of the left neighbour, then those of the right one, then the new tuples.
        self._slots = inbox.peers.slots or self._slots
        self._has_left = inbox.peers.has_left(clock.epoch)
        came = sort_letters(inbox.messages, self._place, self._slots)
        for letters in came:
            yield from self._read_letters(letters)
        role, admit = (Role.PROBE, self._meet) if self._has_left else (Role.BOTH, self._enter)
        for side in Side:
            batch = inbox.batch(side, role)
            if batch is not None:
                yield from admit(side, batch, clock.late_us)
        # 2. Send expired tuples past the rest of the chain.
        for group in Group:
            for meta in self._stored[group].take_expired(clock.watermark_us):
                yield from self._do(self._protocol.expire(group, meta.n_rows), self._read_payload(meta))
                self._store.drop(meta)
                self.counters.expired += meta.n_rows
            self._stored[group].archive(clock.watermark_us)
        # 3. Announce silence, and balance the loads.
        is_quiet = inbox.is_quiet or self._has_left
        if self._place == self._spec.model.workers - 1 and self._known.falls_silent(is_quiet):
            yield from self._do(self._protocol.fall_silent(self._arrived[Side.RIGHT]), None)
        if not self._has_left:
            yield from self._do(self._protocol.balance(), None)
        # 4. Write the segments that are still at this worker.
        for index in self._stored.values():
            index.write()
        self._count(inbox, [letter.block for letter in chain(*came) if letter.block is not None])

    # Events

    def _read_letters(self, letters: Sequence[HandshakeMessage]) -> Iterator[Matches]:
        """Handle letters in their order. Consecutive blocks with equal headers look for partners together."""
        for header, group in groupby(letters, key=lambda letter: letter.header):
            same = list(group)
            if not isinstance(header, TupleBlk):
                for letter in same:
                    yield from self._do(self._protocol.receive(header, letter.n_rows), letter.block)
                continue
            blocks = [block for _, block in same if block is not None]
            steps = [list(self._protocol.receive(header, block.num_rows)) for block in blocks]
            # Each block has its own replies. All other instructions are the same for each block.
            replies = [step for found in steps for step in found if not needs_tuples(step)]
            for block in gather(blocks):
                yield from self._do([step for step in steps[0] if needs_tuples(step)], block)
            yield from self._do(replies, None)

    def _enter(self, side: Side, batch: pa.RecordBatch, late_us: int | None) -> Iterator[Matches]:
        batch = drop_late(batch, side, self._spec.condition.sides[side], late_us, self.counters)
        if not batch.num_rows:
            return
        if side is Side.RIGHT:
            numbers = np.arange(self._arrived[side], self._arrived[side] + batch.num_rows)
            batch = batch.append_column(NUMBER, pa.array(numbers))
        self._arrived[side] += batch.num_rows
        yield from self._do(self._protocol.enter(side, batch.num_rows), batch)

    def _meet(self, side: Side, batch: pa.RecordBatch, late_us: int | None) -> Iterator[Matches]:
        """Join new tuples, which a newer chain stores, with the tuples of the other stream at this worker."""
        batch = drop_late(batch, side, self._spec.condition.sides[side], late_us)
        self.counters.probed += batch.num_rows
        if side is Side.LEFT:
            yield from self._probe(side, batch, (Group.S,))
            return
        batch = batch.append_column(NUMBER, pa.array(np.zeros(batch.num_rows, dtype=np.int64)))
        yield from self._probe(side, batch, (Group.FRESH, Group.PROBED))

    # Instructions

    def _do(self, steps: Iterable[Instruction], event: pa.RecordBatch | None) -> Iterator[Matches]:
        for step in steps:
            match step:
                case Join():
                    assert event is not None
                    yield from self._join(step, event)
                case StoreTuples(group):
                    assert event is not None
                    self._insert(group, event)
                    self.counters.stored += event.num_rows
                case Send():
                    self._send(step, event)
                case Drop():
                    for meta in self._stored.pop(self._known.copies.pop(0)).segments:
                        self._store.drop(meta)
                case MarkProbed():
                    fresh = self._stored[Group.FRESH]
                    self._stored[Group.PROBED].adopt(fresh.segments)
                    fresh.segments = []

    def _join(self, join: Join, event: pa.RecordBatch) -> Iterator[Matches]:
        self.counters.probed += event.num_rows
        if join.side is Side.LEFT:
            plan = None
            if join.first or join.end is not None:
                plan = self._spec.limited
                end = HIGHEST if join.end is None else join.end
                event = event.append_column(FIRST, pa.array(np.full(event.num_rows, join.first)))
                event = event.append_column(END, pa.array(np.full(event.num_rows, end)))
            yield from self._probe(Side.LEFT, event, (Group.S, *self._known.copies), plan)
            return
        yield from self._probe(Side.RIGHT, event, (Group.FRESH,))
        is_unmet = event.column(NUMBER).to_numpy() >= join.first
        if not is_unmet.all():
            event = event.take(np.flatnonzero(is_unmet))
        yield from self._probe(Side.RIGHT, event, (Group.PROBED,))

    def _probe(
        self, side: Side, event: pa.RecordBatch, streams: Iterable[int], plan: IndexPlan | None = None
    ) -> Iterator[Matches]:
        """Find partners among the tuples that are stored under some stream numbers."""
        if not event.num_rows:
            return
        rows = encode_key_rows(side, (plan or self._spec.plans[Group.S]).condition, event)
        width = RowFacts(event)
        found = chain.from_iterable(self._stored[stream].probe(rows, width, plan) for stream in streams)
        yield from match(side, event, found, self._residual, self._columns, self.counters)

    def _insert(self, stream: int, batch: pa.RecordBatch) -> None:
        side = Group(min(stream, Group.S)).side
        self._stored[stream].insert(batch, encode_key_rows(side, self._spec.numbered, batch))

    def _send(self, send: Send, event: pa.RecordBatch | None) -> None:
        if send.has_event:
            assert event is not None
            self.sent.append((send.to, HandshakeMessage(send.header, event)))
            if send.is_copied:
                self._insert(self._begin_copies(), event)
        elif send.group is None:
            self.sent.append((send.to, HandshakeMessage(send.header)))
        elif send.taken is None:
            metas = self._stored[send.group].segments
            self.sent += [
                (send.to, HandshakeMessage(send.header, self._read_payload(meta))) for meta in metas
            ]
        else:
            metas = self._stored[send.group].take(send.taken)
            self.sent.append(
                (send.to, HandshakeMessage(send.header, concat([self._read_payload(meta) for meta in metas])))
            )
            if send.is_copied:
                self._stored[self._begin_copies()].adopt(metas)
            else:
                for meta in metas:
                    self._store.drop(meta)

    def _begin_copies(self) -> int:
        stream = int(max(self._stored)) + 1
        assert stream >= COPIES
        self._known.copies.append(stream)
        self._stored[stream] = ChainedIndex(self._spec.describe_stored(stream), [], self._store)
        return stream

    def _read_payload(self, meta: SegmentMeta) -> pa.RecordBatch:
        return self._store.get(meta).payload

    # Counters

    def _count(self, inbox: Inbox, came: list[pa.RecordBatch]) -> None:
        counters = self.counters
        fresh = [batch for side in Side if (batch := inbox.batch(side, Role.BOTH)) is not None]
        moved = [letter.block for _, letter in self.sent if letter.block is not None]
        counters.received = inbox.received
        counters.received_bytes = inbox.received_bytes
        counters.forwarded = sum(block.num_rows for block in moved)
        counters.count_state(self.state.segments)
        self._known.empty_epochs = self._known.empty_epochs + 1 if self._has_left and not counters.held else 0
        # An expired tuple passes the chain in as many epochs as there are workers, and is then acknowledged.
        counters.expects_tuples = self._known.empty_epochs < self._spec.model.workers + 2
        blocks = [letter for _, letter in self.sent if isinstance(letter.header, TupleBlk)]
        self._known.measured = average_work(
            self._known.measured,
            counters,
            self._protocol.load,
            n_forwarded=sum(letter.n_rows for letter in blocks),
            arrived_bytes=sum(block.nbytes for block in (*came, *fresh)),
            n_workers=self._spec.model.workers,
        )
