"""One worker of the handshake chain: an epoch of messages and new tuples.

What comes in are the messages of both neighbours, in the order in which each sent them, and at the ends of
the chain new tuples. The protocol (``thetastream.joiner.protocol``) says what to do, this module does it to
tuples: join, store, hand on. A message is delivered in the next epoch, so a tuple moves one worker an epoch.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.blocks import concat, gather
from thetastream.joiner.block_size import BlockCost
from thetastream.joiner.box import Plan, key_rows
from thetastream.joiner.chain import ChainedIndex
from thetastream.joiner.chain_join import COPIES, END, FIRST, NUMBER, ChainJoin
from thetastream.joiner.clock import Clock
from thetastream.joiner.protocol import (
    Drop,
    Group,
    Instruction,
    Join,
    Mark,
    Message,
    Protocol,
    Remembered,
    Send,
    Store,
    TupleBlk,
)
from thetastream.joiner.residual import Residual
from thetastream.joiner.segment import SegmentMeta, SegmentStore
from thetastream.joiner.staged import StagedStore
from thetastream.joiner.unit import Counters, Matches, UnitState, meet, timely
from thetastream.keys import HIGHEST
from thetastream.models.chain import AUTO
from thetastream.types import Side

FIRST_BLOCK = 512
"""Until a worker has measured anything."""
QUIET_EPOCHS = 2
"""Epochs without a new tuple that make a silence."""
KEEP = 0.95
"""Weight of earlier epochs in what is measured."""


class Letter(NamedTuple):
    """A message, and the tuples that it brings."""

    message: Message
    block: pa.RecordBatch | None = None


@dataclass
class ChainInbox:
    """What an epoch brings a worker."""

    tuples: dict[Side, pa.RecordBatch] = field(default_factory=dict)
    """New tuples, at the ends of the chain, in the order of their source."""
    letters: tuple[list[Letter], list[Letter]] = field(default_factory=lambda: ([], []))
    """From the left and from the right neighbour, in the order in which they were sent."""
    is_quiet: bool = True
    """Whether no stream brought anything; the right end alone needs to know."""
    received_bytes: int = 0


@dataclass
class Chained:
    """What a worker remembers besides its tuples; plain values."""

    remembered: Remembered = field(default_factory=Remembered)
    copies: list[int] = field(default_factory=list)
    """Streams of the copies, oldest first."""
    quiet_epochs: int = 0
    has_news: bool = False
    """Whether anything has come since the last silence; known to the right end."""
    measured: list[float] = field(default_factory=list)
    """A mean of recent epochs: what ``BlockCost`` is made of."""


class ChainWorker:
    """A place on the chain with its own state.

    Parameters
    ----------
    spec : ChainJoin
        The query.
    place : int
        Which worker this is, from the left.
    state : UnitState
        From the manifest: the state before this epoch.
    store : SegmentStore
        Where runs live.
    """

    def __init__(self, spec: ChainJoin, place: int, state: UnitState, store: SegmentStore) -> None:
        self._spec = spec
        self._place = place
        self._store = StagedStore(store)
        self._arrived = list(state.arrived or (0, 0))
        self._mailbox = state.mailbox
        self._chained = _read(state)
        self._residual = Residual(spec.condition)
        left, right = (side.columns for side in spec.condition.sides)
        self._columns = (left, right)
        streams = sorted({*Group, *self._chained.copies, *(meta.stream for meta in state.segments)})
        self._stored = {
            stream: ChainedIndex(
                spec.stored(stream), [meta for meta in state.segments if meta.stream == stream], self._store
            )
            for stream in streams
        }
        self.block = self._block()
        threshold = spec.model.forward_threshold
        self._protocol = Protocol(
            place,
            spec.model.workers,
            self.block if threshold is None else threshold,
            self.block,
            self._chained.remembered,
        )
        self.sent: list[tuple[int, Letter]] = []
        """Letters for the next epoch, and the places they go to, in order."""
        self.counters = Counters()

    @property
    def state(self) -> UnitState:
        """State after the epoch."""
        segments = [meta for index in self._stored.values() for meta in index.segments]
        return UnitState(segments, tuple(self._arrived), self._mailbox, chained=asdict(self._chained))

    @property
    def is_waiting(self) -> bool:
        """Whether another epoch is needed even if nothing new comes."""
        return self._chained.has_news

    def epoch(self, inbox: ChainInbox, clock: Clock) -> Iterator[Matches]:
        """Run one epoch; exhaust the iterator, then read ``sent``, ``state`` and ``counters``.

        Parameters
        ----------
        inbox : ChainInbox
        clock : Clock
        """
        # 1. What neighbours sent, then what is new.
        for letters in inbox.letters:
            yield from self._read_letters(letters)
        for side, batch in sorted(inbox.tuples.items()):
            yield from self._enter(side, batch, clock.late_us)
        # 2. What no future tuple can join passes the rest of the chain.
        for group in Group:
            for meta in self._stored[group].take_expired(clock.watermark_us):
                yield from self._do(self._protocol.expire(group, meta.n_rows), self._payload(meta))
                self._store.drop(meta)
                self.counters.expired += meta.n_rows
            self._stored[group].archive(clock.watermark_us)
        # 3. Silence, balance.
        if self._place == self._spec.model.workers - 1 and self._falls_silent(inbox.is_quiet):
            yield from self._do(self._protocol.fall_silent(self._arrived[Side.RIGHT]), None)
        yield from self._do(self._protocol.balance(), None)
        # 4. What is still here is kept.
        for index in self._stored.values():
            index.segments = [self._store.written(meta) for meta in index.segments]
        self._count(inbox)

    def _falls_silent(self, is_quiet: bool) -> bool:
        known = self._chained
        known.quiet_epochs = known.quiet_epochs + 1 if is_quiet else 0
        known.has_news = known.has_news or not is_quiet
        if known.quiet_epochs < QUIET_EPOCHS or not known.has_news:
            return False
        known.has_news = False
        return True

    # Events

    def _read_letters(self, letters: Sequence[Letter]) -> Iterator[Matches]:
        """Letters in their order; blocks of one header that follow each other look for partners together."""
        for header, group in groupby(letters, key=lambda letter: letter.message):
            same = list(group)
            if not isinstance(header, TupleBlk):
                for message, block in same:
                    yield from self._do(self._protocol.receive(message, _rows(block)), block)
                continue
            blocks = [block for _, block in same if block is not None]
            steps = [list(self._protocol.receive(header, block.num_rows)) for block in blocks]
            # Each block is acknowledged; what is done to its tuples is the same for all.
            said = [step for found in steps for step in found if _is_said(step)]
            for block in gather(blocks):
                yield from self._do([step for step in steps[0] if not _is_said(step)], block)
            yield from self._do(said, None)

    def _enter(self, side: Side, batch: pa.RecordBatch, late_us: int | None) -> Iterator[Matches]:
        n_rows = batch.num_rows
        batch = timely(batch, self._spec.condition.sides[side].time, late_us)
        self.counters.admit(side, batch.num_rows, n_rows - batch.num_rows)
        if not batch.num_rows:
            return
        if side is Side.RIGHT:
            numbers = np.arange(self._arrived[side], self._arrived[side] + batch.num_rows)
            batch = batch.append_column(NUMBER, pa.array(numbers))
        self._arrived[side] += batch.num_rows
        yield from self._do(self._protocol.enter(side, batch.num_rows), batch)

    # Instructions

    def _do(self, steps: Iterable[Instruction], event: pa.RecordBatch | None) -> Iterator[Matches]:
        for step in steps:
            match step:
                case Join():
                    assert event is not None
                    yield from self._join(step, event)
                case Store(group):
                    assert event is not None
                    self._insert(group, event)
                    self.counters.stored += event.num_rows
                case Send():
                    self._send(step, event)
                case Drop():
                    for meta in self._stored.pop(self._chained.copies.pop(0)).segments:
                        self._store.drop(meta)
                case Mark():
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
            yield from self._probe(Side.LEFT, event, (Group.S, *self._chained.copies), plan)
            return
        yield from self._probe(Side.RIGHT, event, (Group.FRESH,))
        is_unmet = event.column(NUMBER).to_numpy() >= join.first
        if not is_unmet.all():
            event = event.take(np.flatnonzero(is_unmet))
        yield from self._probe(Side.RIGHT, event, (Group.PROBED,))

    def _probe(
        self, side: Side, event: pa.RecordBatch, streams: Iterable[int], plan: Plan | None = None
    ) -> Iterator[Matches]:
        """Partners among some of the stored tuples."""
        if not event.num_rows:
            return
        rows = key_rows(side, (plan or self._spec.plans[Group.S]).condition, event)
        width = event.nbytes / event.num_rows
        found = chain.from_iterable(self._stored[stream].probe(rows, width, plan) for stream in streams)
        yield from meet(side, event, found, self._residual, self._columns, self.counters)

    def _insert(self, stream: int, batch: pa.RecordBatch) -> None:
        side = Group(min(stream, Group.S)).side
        self._stored[stream].insert(batch, key_rows(side, self._spec.numbered, batch))

    def _send(self, send: Send, event: pa.RecordBatch | None) -> None:
        if send.has_event:
            assert event is not None
            self.sent.append((send.to, Letter(send.message, event)))
            if send.is_copied:
                self._insert(self._new_copies(), event)
        elif send.group is None:
            self.sent.append((send.to, Letter(send.message)))
        elif send.taken is None:
            metas = self._stored[send.group].segments
            self.sent += [(send.to, Letter(send.message, self._payload(meta))) for meta in metas]
        else:
            metas = self._stored[send.group].take(send.taken)
            self.sent.append((send.to, Letter(send.message, concat([self._payload(meta) for meta in metas]))))
            if send.is_copied:
                self._stored[self._new_copies()].adopt(metas)
            else:
                for meta in metas:
                    self._store.drop(meta)

    def _new_copies(self) -> int:
        stream = int(max(self._stored)) + 1
        assert stream >= COPIES
        self._chained.copies.append(stream)
        self._stored[stream] = ChainedIndex(self._spec.stored(stream), [], self._store)
        return stream

    def _payload(self, meta: SegmentMeta) -> pa.RecordBatch:
        return self._store.get(meta).payload

    # Measures

    def _block(self) -> int:
        asked = self._spec.model.block
        if asked != AUTO:
            return int(asked)
        return BlockCost(*self._chained.measured).best() if self._chained.measured else FIRST_BLOCK

    def _count(self, inbox: ChainInbox) -> None:
        counters = self.counters
        moved = [letter.block for _, letter in self.sent if letter.block is not None]
        came = [letter.block for letters in inbox.letters for letter in letters if letter.block is not None]
        counters.received = sum(block.num_rows for block in (*came, *inbox.tuples.values()))
        counters.received_bytes = inbox.received_bytes
        counters.forwarded = sum(block.num_rows for block in moved)
        counters.count_state(self.state.segments)
        load, has_measured = self._protocol.load, bool(self._chained.measured or counters.candidates)
        if counters.probed and load and counters.received and has_measured:
            k = self._spec.model.workers
            blocks = [letter.block for _, letter in self.sent if isinstance(letter.message, TupleBlk)]
            arrived = [*came, *inbox.tuples.values()]
            now = [
                float(sum(_rows(block) for block in blocks)),
                float(counters.probed),
                min(1.0, counters.candidates / counters.probed / load),
                sum(block.nbytes for block in arrived) / counters.received,
                float(load),
            ]
            # Blocks may be rare: at first a worker expects to hand on what an end of a balanced chain does.
            before = self._chained.measured or [counters.received * (k - 1) / k, *now[1:]]
            self._chained.measured = [KEEP * a + (1 - KEEP) * b for a, b in zip(before, now, strict=True)]


def _read(state: UnitState) -> Chained:
    if not state.chained:
        return Chained()
    return Chained(**{**state.chained, "remembered": Remembered(**state.chained["remembered"])})


def _is_said(step: Instruction) -> bool:
    return isinstance(step, Send) and not step.has_event


def _rows(block: pa.RecordBatch | None) -> int:
    return 0 if block is None else int(block.num_rows)
