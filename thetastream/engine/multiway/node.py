"""One node of a multi-way join.

In an epoch, every node of a ring receives the new tuples of all streams. One node stores each of them, and
partial results of the previous epoch go from all nodes to all nodes. A node joins both with the tuples that
it stores, hop by hop (``thetastream.engine.multiway.hop``). It emits complete results and sends partial
results as messages for the next epoch. Therefore an m-way result is emitted up to m - 2 epochs after its last
tuple arrived.

Other multi-way models (``thetastream.models.multiway``) send new tuples to some nodes only, store them at
several nodes, send partial results to some nodes only, or join them further at the node that found them.
Everything else is the same.

*Purge.* A stored tuple is dropped when no partial result in flight and no waiting tuple can need it.
Therefore state expires by the earliest horizon (``thetastream.engine.multiway.query``) of the epochs of
all tuples and partial results that are in flight, waiting or new (PSP-I).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import compress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.blocks import RowFacts
from thetastream.core.columns import BORN, EARLIEST, LATEST, OLDEST, SIGN
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.engine.arrival import read_times
from thetastream.engine.clock import Clock, find_earliest
from thetastream.engine.inbox import Inbox, Message, Peers
from thetastream.engine.matching import Residual
from thetastream.engine.moved_tuples import is_moved
from thetastream.engine.multiway.admission import admit
from thetastream.engine.multiway.equal_decisions import (
    EqualDecisions,
    NewOrigins,
    is_decision,
    list_last_hops,
    take_over,
)
from thetastream.engine.multiway.graph import HopKey
from thetastream.engine.multiway.hop import Hop, join_columns, list_member_columns
from thetastream.engine.multiway.partial_results import (
    Overlap,
    PartialResults,
    PartialResultsHeader,
    find_end,
    merge_partial_results,
)
from thetastream.engine.multiway.query import (
    Horizon,
    MultiwayCounters,
    MultiwayQuery,
    MultiwayState,
    combine_horizons,
)
from thetastream.engine.multiway.stored_tuples import StoredTuples
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import SegmentStore
from thetastream.models.multiway import Multiway, NewTuples, Probes, Travel


class MultiwayNode:
    """One node of a multi-way model, with its own state.

    Parameters
    ----------
    spec : MultiwayQuery
        The query.
    slot : int
        The number of this node.
    state : MultiwayState
        The state before this epoch, from the manifest.
    store : SegmentStore
        The store that holds the runs.
    """

    def __init__(self, spec: MultiwayQuery, slot: int, state: MultiwayState, store: SegmentStore) -> None:
        self._spec = spec
        self._slot = slot
        self._blocks = store
        self._decisions = EqualDecisions(spec, state, store)
        self._stored = StoredTuples(spec, state.segments, store)
        self._found: dict[PartialResultsHeader, list[pa.RecordBatch]] = defaultdict(list)
        self.messages: list[Message] = []
        """The messages to the next epoch: partial results, and decisions for nodes that join."""
        self._has_left = False
        self._overlap: Overlap | None = None
        self._ends_us = state.ends_us
        self.counters = MultiwayCounters()
        self._counts_tuples = spec.model.counts(slot, Side.LEFT)
        if self._counts_tuples:
            self.counters.list_streams(side.alias for side in spec.graph.sides)

    @property
    def state(self) -> MultiwayState:
        """The current state."""
        return replace(
            self._decisions.state,
            segments=self._stored.segments,
            ends_us=self._ends_us,
            stored_once=self._spec.model.stored_once,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether another epoch is needed even if no new tuples arrive.

        Node 0 answers for all nodes, except for tuples that have to move.
        """
        return (self._slot == 0 and bool(self._decisions.queue.waiting)) or self._stored.has_to_move

    def _take_found(self) -> list[PartialResults]:
        """Return the partial results that were found since the last call."""
        found = [PartialResults(*header, block) for header, blocks in self._found.items() for block in blocks]
        self._found.clear()
        return merge_partial_results(found)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the payload columns of complete results, stream after stream, and their
        signs if a stream has deletes."""
        # 1. Read the messages, and expire the tuples that nothing can join any more.
        peers = inbox.peers
        self._has_left = peers.has_left(clock.epoch)
        self._stored.prepare_moves(peers)
        received = self._receive(inbox)
        horizon = self._decisions.find_horizon(clock.late_us)
        in_flight = [partial.horizon for partial in received]
        waiting = [entry.horizon for entry in self._decisions.queue.waiting]
        horizons = combine_horizons([horizon, *in_flight, *waiting], self._spec.n_streams)
        self.counters.expired += self._stored.expire(horizons)
        stays = self._spec.model.travel is Travel.STAY
        if self._has_left and stays:
            self._overlap_with_newer(peers, find_earliest(horizons))
        # 2. Store the share of this node of the new tuples. Only later tuples find them.
        fresh = self._admit(inbox, clock, horizon)
        # 3. Join the new tuples and the partial results in flight.
        partials = self._decisions.begin(clock.epoch, horizon, fresh, received)
        if self._overlap is not None:
            partials = [self._overlap.begin(partial) for partial in partials]
        partials += merge_partial_results(received)
        self._decisions.count_comparisons(partials)
        results: list[tuple[HopKey, int]] = []
        while partials:
            for partial in partials:
                yield from self._hop(partial)
            # Batch DataFrames have no next epoch. They are joined by one node, which stores all tuples.
            partials = self._take_found() if stays or clock.is_last else []
            if stays:
                self._decisions.count_comparisons(partials)
                results += list_last_hops(partials)
        if stays:
            self._decisions.count_results(results)
        # 4. Send the new partial results, and stored tuples if the node has left.
        self._send(self._take_found(), peers, clock)
        if self._has_left:
            for n_sent, messages in self._stored.send(peers, inbox.received):
                self.counters.forwarded += n_sent
                self.messages += messages
        # 5. Write the new segments.
        self._stored.write()
        self._count(inbox)

    def _overlap_with_newer(self, peers: Peers, horizon: int | None) -> None:
        """Go on storing new tuples until all tuples have expired that a newer generation does not store."""
        assert peers.last_epoch is not None
        if self._ends_us is None:
            self._ends_us = find_end(self._stored.indexes)
        if horizon is None or horizon < self._ends_us:
            self._overlap = Overlap((peers.last_epoch + 1) * self._spec.n_streams)
        else:
            self.counters.expired += self._stored.clear()

    def _receive(self, inbox: Inbox) -> list[PartialResults]:
        """Store moved tuples, and read the partial results of an epoch. A node that has joined takes over the
        decisions so far."""
        self._stored.receive(inbox.messages)
        others = [message for message in inbox.messages if not is_moved(message)]
        decided = [is_decision(message) for message in others]
        if any(decided) and not self._has_left:
            found = list(compress(others, decided))
            self._decisions = take_over(self._spec, found, self._blocks) or self._decisions
        pairs = zip(others, decided, strict=True)
        return [PartialResults.from_message(message) for message, is_other in pairs if not is_other]

    def _send(self, found: list[PartialResults], peers: Peers, clock: Clock) -> None:
        """Send partial results, and in the last epoch before other nodes join, the decisions so far."""
        generations = peers.generations or ((self._spec.model, tuple(range(self._spec.model.n_units))),)
        if any(model.travel is Travel.COVER for model, _ in generations):
            found = [to_node for partial in found for to_node in self._address(partial, generations)]
        self.counters.forwarded = sum(partial.block.num_rows for partial in found)
        self.messages = [partial.to_message() for partial in found]
        is_asked = self._slot == 0 and clock.epoch == peers.last_epoch
        if is_asked and self._spec.model.has_mailbox(self._spec.n_streams):
            self.messages += self._decisions.make_messages()

    def _address(
        self, partial: PartialResults, generations: Sequence[tuple[Multiway, Sequence[int]]]
    ) -> Iterator[PartialResults]:
        """Address partial results to the nodes that store their partners, in each generation.

        An empty message to all nodes carries the watermark of the origins, so that nodes delay purging.
        """
        yield replace(partial, block=partial.block.slice(0, 0))
        payload, _ = self._next_hop(partial).prepare_probes(partial.block)
        probes = self._describe_probes(partial.origin, payload)
        for model, slots in generations:
            for node, slot in enumerate(slots):
                parts = [
                    np.arange(len(probes.tie_breakers)) if rows is None else rows
                    for rows in model.choose_probes(node, probes)
                ]
                if len(rows := np.unique(np.concatenate(parts))):
                    yield replace(partial, block=partial.block.take(rows), to=slot)

    def _describe_probes(self, origin: int, payload: pa.RecordBatch) -> Probes:
        """Describe partial results that began with tuples of ``origin``, for the model."""
        side = self._spec.graph.sides[origin]
        tie_breakers = payload.column(BORN).to_numpy() if side.time is None else read_times(payload, side)
        return Probes(payload.column(EARLIEST).to_numpy(), payload.column(LATEST).to_numpy(), tie_breakers)

    def _next_hop(self, partial: PartialResults) -> Hop:
        return self._spec.find_hop(partial.path[: partial.n_members], partial.path[partial.n_members])

    # New tuples

    def _admit(self, inbox: Inbox, clock: Clock, horizon: Horizon) -> list[NewOrigins]:
        """Admit the new tuples, and store the share of this node. Return the tuples that look for
        partners."""
        role = Role.PROBE if self._has_left else Role.BOTH
        batches = [inbox.batch(stream, role) for stream in range(self._spec.n_streams)]
        n_new = sum(batch.num_rows for batch in batches if batch is not None)
        counters = self.counters if self._counts_tuples and not self._has_left else None
        fresh = []
        for new in admit(self._spec, self._decisions, batches, clock, counters, self._slot):
            probing = new.probing
            if not self._has_left or self._overlap is not None:
                reach = self._spec.reach[new.stream]
                arrivals = NewTuples(new.stream, new.sequence, new.times, reach, n_new)
                parts = self._spec.model.assign_parts(self._slot, arrivals)
                for part in range(self._spec.model.n_parts):
                    self._store(self._spec.part(new.stream, part), new.stored, parts == part)
                if self._spec.model.travel is Travel.STAY:
                    # A node that stores a tuple also stores all tuples that it can join with.
                    probing = probing.filter(pa.array(parts >= 0))
                    self._decisions.count_share(new.stream, probing.num_rows)
            if probing.num_rows:
                fresh.append(NewOrigins(new.stream, horizon, probing))
        return fresh

    def _store(self, number: int, batch: pa.RecordBatch, is_mine: npt.NDArray[np.bool_]) -> None:
        mine = np.flatnonzero(is_mine)
        if len(mine):
            self._stored.insert(number, batch.take(mine))
            self.counters.stored += len(mine)

    def _hop(self, partial: PartialResults) -> Iterator[list[pa.Array]]:
        """Find partners of partial results among the tuples that this node stores."""
        if not partial.block.num_rows:
            return
        hop = self._next_hop(partial)
        payload, rows = hop.prepare_probes(partial.block)
        probes_by_part = self._spec.model.choose_probes(
            self._slot, self._describe_probes(partial.origin, payload)
        )
        for part, chosen in enumerate(probes_by_part):
            index = self._stored.indexes[self._spec.part(hop.target, part)]
            if chosen is None:
                yield from self._probe(partial, hop, index, payload, rows)
            elif len(chosen):
                yield from self._probe(partial, hop, index, payload.take(chosen), rows.take(chosen, axis=0))

    def _probe(
        self, partial: PartialResults, hop: Hop, index: ChainedIndex, payload: pa.RecordBatch, rows: Int64s
    ) -> Iterator[list[pa.Array]]:
        """Find partners of partial results in one part of the store."""
        everyone = tuple(sorted((*hop.members, hop.target)))
        is_last = partial.n_members + 1 == self._spec.n_streams
        residual = Residual(hop.plan.condition)
        self.counters.probed += len(rows)
        for one in index.probe(rows, RowFacts(payload), hop.plan):
            self.counters.candidates += one.n_compared
            found, stored = residual.keep(Side.LEFT, payload, one)
            if not len(found):
                continue
            joined, targets = payload.take(found), one.payload.take(stored)
            if self._overlap is not None:
                joined, targets = self._overlap.join(joined, targets, is_last)
            columns = join_columns(self._spec.graph, hop, joined, targets)
            if is_last:
                self.counters.matched += joined.num_rows
                names = [name for side in self._spec.graph.sides for name in side.columns]
                yield [columns[name] for name in (*names, *([SIGN] if SIGN in columns else []))]
                continue
            names = [*list_member_columns(self._spec.graph, everyone), *self._spec.graph.origin_columns]
            names += [OLDEST] * (self._overlap is not None)
            block = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
            self._found[partial.path, partial.n_members + 1, partial.horizon].append(block)

    def _count(self, inbox: Inbox) -> None:
        counters = self.counters
        counters.received = inbox.received
        counters.received_bytes = inbox.received_bytes
        queue, refiner = self._decisions.queue, self._decisions.refiner
        # All nodes have the same queue.
        counters.waiting = queue.n_waiting if self._slot == 0 and not self._has_left else 0
        if refiner is not None:
            aliases = [side.alias for side in self._spec.graph.sides]
            orders = zip(aliases, refiner.orders, strict=True)
            counters.order = {alias: [aliases[stream] for stream in order] for alias, order in orders}
        counters.count_state(self._stored.segments)
