"""One node of the ring: an epoch of an m-way join.

What comes in are new tuples of all streams, which every node sees and one stores, and the partial results of
the epoch before, from all nodes to all nodes. A node joins both with the slices it stores, hop by hop
(``thetastream.joiner.hop``): complete results leave, partial ones are messages for the next epoch. So an
m-way result comes up to m - 2 epochs after its last tuple.

Other models of m streams (``thetastream.models.multiway``) store tuples on several nodes, ask some nodes
only, or let partial results go on where they were found; all else is the same.

*Purge.* A stored tuple is dropped when nothing that is still under way can need it. The origin of a partial
result is later than the watermark by which it was judged (``thetastream.joiner.clock``), so state expires by
the earliest such watermark among what is in flight and what is new (PSP-I).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.blocks import gather
from thetastream.joiner.box import key_rows
from thetastream.joiner.chain import ChainedIndex, ChainSpec
from thetastream.joiner.clock import Clock
from thetastream.joiner.graph import JoinGraph
from thetastream.joiner.hop import BORN, EARLIEST, LATEST, Hop, hop, members_columns
from thetastream.joiner.queue import Fresh, Queue
from thetastream.joiner.refine import Order, Refinement, Refiner, Step
from thetastream.joiner.residual import Residual
from thetastream.joiner.segment import SegmentStore
from thetastream.joiner.unit import Counters, UnitState
from thetastream.keys import Int64s, encode
from thetastream.models.multiway import Asking, Multiway, NewTuples, Travel
from thetastream.types import Side


@dataclass(frozen=True)
class RingSpec:
    """All that a node needs to know of the query; picklable."""

    graph: JoinGraph
    orders: tuple[Order, ...]
    """Per stream the others, in the order in which a tuple of it looks for partners, to begin with."""
    chains: tuple[ChainSpec, ...]
    """How the tuples of each stream are stored, part by part."""
    model: Multiway
    reach: tuple[tuple[tuple[int | None, int | None], ...], ...] = ()
    """Per stream how far the event times of the others in a result are from its own."""
    refinement: Refinement | None = None
    """Which orders change as selectivities are measured; None: they stay as they are."""
    _hops: dict[Step, Hop] = field(default_factory=dict, compare=False, repr=False)
    """Those that were asked for: the orders of m streams may use m * 2 ** (m - 1)."""

    @property
    def n_streams(self) -> int:
        """m."""
        return len(self.orders)

    @property
    def has_mailbox(self) -> bool:
        """Whether there are partial results that wait for the next epoch."""
        return self.model.has_mailbox(self.n_streams)

    def part(self, stream: int, part: int) -> int:
        """Which chain holds a part of the stored tuples of a stream."""
        return stream * self.model.n_parts + part

    def hop(self, members: Sequence[int], target: int) -> Hop:
        """The step from partial results over ``members`` to one more stream."""
        step = sum(1 << stream for stream in members), target
        if step not in self._hops:
            stored = self.chains[self.part(target, 0)].plan
            self._hops[step] = hop(self.graph, sorted(members), target, stored)
        return self._hops[step]


@dataclass(frozen=True)
class Message:
    """Partial results that began with tuples of one stream in one epoch."""

    path: Order
    """All streams, the origin first, in the order in which they are taken in."""
    n_members: int
    since_us: int | None
    """Watermark by which the origins were judged: they are later than it."""
    block: pa.RecordBatch
    to: int | None = None
    """The node it goes to; None: all."""

    @property
    def origin(self) -> int:
        """The stream whose tuples these partial results began with."""
        return self.path[0]

    def step(self, n_members: int) -> Step:
        """The hop that partial results over so many streams go: members, a bit each, and target."""
        return sum(1 << stream for stream in self.path[:n_members]), self.path[n_members]


Header = tuple[Order, int, int | None]
"""Path, number of members and watermark of a message."""


@dataclass
class RingInbox:
    """What an epoch brings a node."""

    tuples: dict[int, pa.RecordBatch] = field(default_factory=dict)
    """New tuples by stream, in the order of their source."""
    messages: list[Message] = field(default_factory=list)
    received_bytes: int = 0


class RingNode:
    """A slot of the ring with its own state.

    Parameters
    ----------
    spec : RingSpec
        The query.
    slot : int
        Which node this is.
    state : UnitState
        From the manifest: the state before this epoch.
    store : SegmentStore
        Where runs live.
    """

    def __init__(self, spec: RingSpec, slot: int, state: UnitState, store: SegmentStore) -> None:
        self._spec = spec
        self._slot = slot
        self._arrived = list(state.arrived or (0,) * spec.n_streams)
        self._mailbox = state.mailbox
        self._queue = Queue(spec.model.in_flight, spec.n_streams - 1, state.waiting, state.admitted, store)
        self._chains = [
            ChainedIndex(chain_, [meta for meta in state.segments if meta.stream == number], store)
            for number, chain_ in enumerate(spec.chains)
        ]
        refinement = spec.refinement
        self._refiner = None if refinement is None else Refiner(refinement, spec.orders, state.measured)
        self._held: dict[Header, list[pa.RecordBatch]] = defaultdict(list)
        self.messages: list[Message] = []
        """Partial results for the next epoch."""
        self._newest: list[tuple[int, int, int]] = []
        self.counters = Counters()

    @property
    def state(self) -> UnitState:
        """State after what has been done so far."""
        segments = [meta for index in self._chains for meta in index.segments]
        queue = self._queue
        measured = None if self._refiner is None else self._refiner.measured
        return UnitState(
            segments, tuple(self._arrived), self._mailbox, queue.waiting, queue.admitted, measured
        )

    @property
    def is_waiting(self) -> bool:
        """Whether another epoch is needed even if nothing new comes."""
        return bool(self._queue.waiting)

    def _released(self) -> list[Message]:
        """Partial results found since this was last asked."""
        held = [Message(*header, block) for header, blocks in self._held.items() for block in blocks]
        self._held.clear()
        return together(held)

    def epoch(self, inbox: RingInbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch; exhaust the iterator, then read ``messages``, ``state`` and ``counters``.

        Parameters
        ----------
        inbox : RingInbox
        clock : Clock

        Yields
        ------
        list of pyarrow.Array
            Payload columns of complete results, stream after stream.
        """
        # 1. Forget what nothing can join any more.
        under_way = [message.since_us for message in inbox.messages]
        waiting = [entry.since_us for entry in self._queue.waiting]
        horizon = _earliest([clock.late_us, *under_way, *waiting])
        for index in self._chains:
            self.counters.expired += index.expire(horizon)
            index.archive(horizon)
        # 2. Store what is mine of the new tuples. They are seen by those that come after them alone.
        fresh = self._admitted(inbox, clock)
        # 3. Join them, and what is under way.
        begun = list(self._queue.admit(clock.epoch, fresh))
        self._refine(inbox.messages, clock.late_us, bool(begun))
        asking = [message for tuples in begun for message in self._begun(tuples)]
        asking += together(inbox.messages)
        self._note(asking)
        while asking:
            for message in asking:
                yield from self._hop(message)
            asking = self._released() if self._spec.model.travel is Travel.STAY else []
        # 4. Send what goes on.
        self.messages = self._released()
        if self._spec.model.travel is Travel.COVER:
            self.messages = [to_node for message in self.messages for to_node in self._addressed(message)]
        self._count(inbox)

    def _addressed(self, message: Message) -> Iterator[Message]:
        """Partial results to the nodes they go to, and to all nodes word of how old their origins are."""
        yield replace(message, block=message.block.slice(0, 0))
        payload, _ = self._next_hop(message).probes(message.block)
        asking = self._asking(message.origin, payload)
        for node in range(self._spec.model.n_units):
            parts = [
                np.arange(len(asking.turns)) if rows is None else rows
                for rows in self._spec.model.asked(node, asking)
            ]
            if len(rows := np.unique(np.concatenate(parts))):
                yield replace(message, block=message.block.take(rows), to=node)

    def _asking(self, origin: int, payload: pa.RecordBatch) -> Asking:
        """What a model is told of partial results that began with tuples of ``origin``."""
        time = self._spec.graph.sides[origin].time
        turns = payload.column(BORN).to_numpy() if time is None else encode(payload[time.column], time.domain)
        return Asking(payload.column(EARLIEST).to_numpy(), payload.column(LATEST).to_numpy(), turns)

    def _next_hop(self, message: Message) -> Hop:
        return self._spec.hop(message.path[: message.n_members], message.path[message.n_members])

    # Orders

    def _refine(self, messages: list[Message], late_us: int | None, is_begun: bool) -> None:
        """Orders for the tuples that begin now, by what the last epoch's hops found."""
        if self._refiner is not None:
            self._refiner.count(
                (message.step(message.n_members - 1), message.block.num_rows) for message in messages
            )
            self._refiner.arrived(self._newest, late_us)
            if is_begun:
                self._refiner.choose()

    def _begun(self, begun: Fresh) -> Iterator[Message]:
        """Tuples that begin to look for partners; some may try another order."""
        stream, since_us, block = begun
        if self._refiner is None:
            yield Message((stream, *self._spec.orders[stream]), 1, since_us, block)
            return
        order, rest = self._refiner.orders[stream], block
        trial = self._refiner.trial(stream, self._turns(stream, block))
        if trial is not None and len(trial[1]):
            tried = np.isin(np.arange(block.num_rows), trial[1])
            yield Message((stream, *trial[0]), 1, since_us, block.take(trial[1]))
            rest = block.take(np.flatnonzero(~tried))
        if rest.num_rows:
            yield Message((stream, *order), 1, since_us, rest)

    def _turns(self, stream: int, block: pa.RecordBatch) -> Int64s:
        """A number for each tuple, the same if rows come in another order when a task is run again."""
        time = self._spec.graph.sides[stream].time
        return np.arange(block.num_rows) if time is None else encode(block.column(time.column), time.domain)

    def _note(self, asking: list[Message]) -> None:
        """Hops whose partial results all nodes will see; results of the last one leave."""
        for message in asking:
            if self._refiner is not None and message.n_members + 1 < self._spec.n_streams:
                self._refiner.asked(message.step(message.n_members), message.block.num_rows)

    def _admitted(self, inbox: RingInbox, clock: Clock) -> list[Fresh]:
        """New tuples that are not late, each with its place in the global order."""
        admitted = []
        self._newest = []
        late_us = clock.late_us
        n_new = sum(batch.num_rows for batch in inbox.tuples.values())
        for stream, batch in sorted(inbox.tuples.items()):
            time = self._spec.graph.sides[stream].time
            times = np.zeros(batch.num_rows, dtype=np.int64)
            if time is not None:
                times = encode(batch.column(time.column), time.domain)
            if late_us is not None and time is not None and not (timely := times > late_us).all():
                kept = np.flatnonzero(timely)
                if self._spec.model.is_home(self._slot, Side.LEFT):
                    self.counters.late += len(timely) - len(kept)
                batch, times = batch.take(kept), times[kept]
            n_rows = batch.num_rows
            if not n_rows:
                continue
            born = np.full(n_rows, clock.epoch * self._spec.n_streams + stream)
            batch = batch.append_column(BORN, pa.array(born))
            sequence = np.arange(self._arrived[stream], self._arrived[stream] + n_rows)
            self._arrived[stream] += n_rows
            self._newest.append((stream, int(times.max()), n_rows))
            arrivals = NewTuples(stream, sequence, times, self._spec.reach[stream], n_new)
            parts = self._spec.model.takes(self._slot, arrivals)
            for part in range(self._spec.model.n_parts):
                self._store(self._spec.part(stream, part), batch, parts == part)
            if self._spec.model.travel is Travel.STAY:
                # Who stores a tuple stores what it can join with.
                batch = batch.filter(pa.array(parts >= 0))
            if batch.num_rows:
                admitted.append(Fresh(stream, late_us, batch))
        return admitted

    def _store(self, number: int, batch: pa.RecordBatch, is_mine: npt.NDArray[np.bool_]) -> None:
        mine = np.flatnonzero(is_mine)
        if len(mine):
            side = self._spec.chains[number].plan
            batch = batch.take(mine)
            self._chains[number].insert(batch, key_rows(Side.RIGHT, side.condition, batch))
            self.counters.stored += len(mine)

    def _hop(self, message: Message) -> Iterator[list[pa.Array]]:
        """Partners of partial results among the slices that are here."""
        if not message.block.num_rows:
            return
        hop = self._next_hop(message)
        payload, rows = hop.probes(message.block)
        asked = self._spec.model.asked(self._slot, self._asking(message.origin, payload))
        for part, chosen in enumerate(asked):
            chain = self._chains[self._spec.part(hop.target, part)]
            if chosen is None:
                yield from self._probe(message, hop, chain, payload, rows)
            elif len(chosen):
                yield from self._probe(message, hop, chain, payload.take(chosen), rows[chosen])

    def _probe(
        self, message: Message, hop: Hop, chain: ChainedIndex, payload: pa.RecordBatch, rows: Int64s
    ) -> Iterator[list[pa.Array]]:
        """Partners of partial results in one part of the store."""
        everyone = tuple(sorted((*hop.members, hop.target)))
        is_last = message.n_members + 1 == self._spec.n_streams
        residual = Residual(hop.plan.condition)
        self.counters.probed += len(rows)
        width = message.block.nbytes / message.block.num_rows
        for found, partner, stored, candidates in chain.probe(rows, width, hop.plan):
            self.counters.candidates += candidates
            found, stored = residual.keep(Side.LEFT, payload, found, partner, stored)
            if not len(found):
                continue
            columns = self._joined(hop, payload.take(found), partner.take(stored))
            if is_last:
                self.counters.matched += len(found)
                yield [columns[name] for side in self._spec.graph.sides for name in side.columns]
                continue
            names = [*members_columns(self._spec.graph, everyone), BORN]
            partial = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
            self._held[message.path, message.n_members + 1, message.since_us].append(partial)

    def _joined(self, hop: Hop, members: pa.RecordBatch, target: pa.RecordBatch) -> dict[str, pa.Array]:
        """Block columns of joined tuples; ``born`` is that of the origin."""
        theirs = members_columns(self._spec.graph, [hop.target])
        return dict(zip(members.schema.names, members.columns, strict=True)) | {
            name: target.column(name) for name in theirs
        }

    def _count(self, inbox: RingInbox) -> None:
        segments = self.state.segments
        counters = self.counters
        counters.received = sum(batch.num_rows for batch in inbox.tuples.values())
        counters.received += sum(message.block.num_rows for message in inbox.messages)
        counters.received_bytes = inbox.received_bytes
        counters.forwarded = sum(message.block.num_rows for message in self.messages)
        counters.waiting = self._queue.n_waiting if self._slot == 0 else 0  # all nodes have the same queue
        if self._refiner is not None:
            aliases = [side.alias for side in self._spec.graph.sides]
            orders = zip(aliases, self._refiner.orders, strict=True)
            counters.order = {alias: [aliases[stream] for stream in order] for alias, order in orders}
        counters.count_state(segments)


def together(messages: list[Message]) -> list[Message]:
    """Messages that began alike as one: nodes send each their own, and each costs every segment a search."""
    found: dict[Header, list[pa.RecordBatch]] = defaultdict(list)
    for message in messages:
        found[message.path, message.n_members, message.since_us].append(message.block)
    return [Message(*header, block) for header, blocks in found.items() for block in gather(blocks)]


def _earliest(watermarks: list[int | None]) -> int | None:
    known = [watermark for watermark in watermarks if watermark is not None]
    return min(known) if len(known) == len(watermarks) else None
