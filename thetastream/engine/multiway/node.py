"""One node of a multi-way join.

In an epoch, every node receives the new tuples of all streams. Under the ring, one node stores each of them,
and partial results of the previous epoch go from all nodes to all nodes. A node joins both with the tuples
that it stores, hop by hop (``thetastream.engine.multiway.hop``). It emits complete results and sends partial
results as messages for the next epoch. Therefore an m-way result is emitted up to m - 2 epochs after its last
tuple arrived.

Other multi-way models (``thetastream.models.multiway``) store tuples at several nodes, send partial results
to some nodes only, or join them further at the node that found them. Everything else is the same.

*Purge.* A stored tuple is dropped when no partial result in flight and no waiting tuple can need it. The
event time of an origin is later than ``late_us`` of its epoch (``thetastream.engine.clock``). Therefore state
expires by the earliest of these watermarks over all tuples and partial results that are in flight, waiting or
new (PSP-I).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.columns import BORN, EARLIEST, LATEST
from thetastream.core.keys import Int64s
from thetastream.core.row_bytes import RowBytes
from thetastream.core.sides import Role, Side
from thetastream.engine.clock import Clock, find_earliest
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.lateness import drop_late, read_times
from thetastream.engine.matching import Residual
from thetastream.engine.multiway.counters import MultiwayCounters
from thetastream.engine.multiway.hop import Hop, join_columns, list_member_columns
from thetastream.engine.multiway.hop_orders import Refiner
from thetastream.engine.multiway.partial_results import (
    PartialResults,
    PartialResultsHeader,
    merge_partial_results,
)
from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.engine.multiway.queue import Fresh, Queue
from thetastream.engine.multiway.state import MultiwayState
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import SegmentStore
from thetastream.models.multiway import NewTuples, Probes, Travel


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
        self._arrived = list(state.arrived or (0,) * spec.n_streams)
        self._queue = Queue(spec.model.in_flight, spec.n_streams - 1, state.waiting, state.admitted, store)
        self._stored = [
            ChainedIndex(stored, [meta for meta in state.segments if meta.stream == number], store)
            for number, stored in enumerate(spec.stored)
        ]
        refinement = spec.refinement
        self._refiner = None if refinement is None else Refiner(refinement, spec.orders, state.measured)
        self._found: dict[PartialResultsHeader, list[pa.RecordBatch]] = defaultdict(list)
        self.going: list[PartialResults] = []
        """The partial results that are sent to the next epoch."""
        self._newest: list[tuple[int, int, int]] = []
        self.counters = MultiwayCounters()
        self._is_home = spec.model.is_home(slot, Side.LEFT)
        if self._is_home:
            self.counters.list_streams(side.alias for side in spec.graph.sides)

    @property
    def state(self) -> MultiwayState:
        """The current state."""
        segments = [meta for index in self._stored for meta in index.segments]
        queue = self._queue
        measured = None if self._refiner is None else self._refiner.measured
        return MultiwayState(segments, tuple(self._arrived), queue.waiting, queue.admitted, measured)

    @property
    def messages(self) -> list[Message]:
        """The partial results for the next epoch, as messages of the engine protocol."""
        return [partial.seal() for partial in self.going]

    @property
    def is_waiting(self) -> bool:
        """Whether another epoch is needed even if no new tuples arrive. Node 0 answers for all nodes."""
        return self._slot == 0 and bool(self._queue.waiting)

    def _take_found(self) -> list[PartialResults]:
        """Return the partial results that were found since the last call."""
        found = [PartialResults(*header, block) for header, blocks in self._found.items() for block in blocks]
        self._found.clear()
        return merge_partial_results(found)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the payload columns of complete results, stream after stream."""
        # 1. Expire the tuples that nothing can join any more.
        received = [PartialResults.unseal(message) for message in inbox.messages]
        in_flight = [partial.since_us for partial in received]
        waiting = [entry.since_us for entry in self._queue.waiting]
        horizon = find_earliest([clock.late_us, *in_flight, *waiting])
        for index in self._stored:
            self.counters.expired += index.expire(horizon)
            index.archive(horizon)
        # 2. Store the share of this node of the new tuples. Only later tuples find them.
        fresh = self._admit(inbox, clock)
        # 3. Join the new tuples and the partial results in flight.
        beginning = list(self._queue.admit(clock.epoch, fresh))
        self._refine(received, clock.late_us, bool(beginning))
        partials = [partial for tuples in beginning for partial in self._begin(tuples)]
        partials += merge_partial_results(received)
        self._count_comparisons(partials)
        while partials:
            for partial in partials:
                yield from self._hop(partial)
            partials = self._take_found() if self._spec.model.travel is Travel.STAY else []
        # 4. Send the new partial results.
        self.going = self._take_found()
        if self._spec.model.travel is Travel.COVER:
            self.going = [to_node for partial in self.going for to_node in self._address(partial)]
        # 5. Write the new segments.
        for index in self._stored:
            index.write()
        self._count(inbox)

    def _address(self, partial: PartialResults) -> Iterator[PartialResults]:
        """Address partial results to the nodes that store their partners.

        An empty message to all nodes carries the watermark of the origins, so that nodes delay purging.
        """
        yield replace(partial, block=partial.block.slice(0, 0))
        payload, _ = self._next_hop(partial).prepare_probes(partial.block)
        probes = self._describe_probes(partial.origin, payload)
        for node in range(self._spec.model.n_units):
            parts = [
                np.arange(len(probes.tie_breakers)) if rows is None else rows
                for rows in self._spec.model.choose_probes(node, probes)
            ]
            if len(rows := np.unique(np.concatenate(parts))):
                yield replace(partial, block=partial.block.take(rows), to=node)

    def _describe_probes(self, origin: int, payload: pa.RecordBatch) -> Probes:
        """Describe partial results that began with tuples of ``origin``, for the model."""
        side = self._spec.graph.sides[origin]
        tie_breakers = payload.column(BORN).to_numpy() if side.time is None else read_times(payload, side)
        return Probes(payload.column(EARLIEST).to_numpy(), payload.column(LATEST).to_numpy(), tie_breakers)

    def _next_hop(self, partial: PartialResults) -> Hop:
        return self._spec.find_hop(partial.path[: partial.n_members], partial.path[partial.n_members])

    # Hop orders

    def _refine(self, partials: list[PartialResults], late_us: int | None, is_begun: bool) -> None:
        """Count the results of the last hops, and choose the hop orders of the tuples that begin now."""
        if self._refiner is not None:
            self._refiner.count_results(
                (partial.make_hop_key(partial.n_members - 1), partial.block.num_rows) for partial in partials
            )
            self._refiner.count_arrivals(self._newest, late_us)
            if is_begun:
                self._refiner.choose()

    def _begin(self, beginning: Fresh) -> Iterator[PartialResults]:
        """Convert tuples that begin to look for partners to partial results. Some try another hop order."""
        stream, since_us, block = beginning
        if self._refiner is None:
            yield PartialResults((stream, *self._spec.orders[stream]), 1, since_us, block)
            return
        order, rest = self._refiner.orders[stream], block
        trial = self._refiner.assign_trial(stream, self._number_tie_breakers(stream, block))
        if trial is not None and len(trial[1]):
            tried = np.isin(np.arange(block.num_rows), trial[1])
            yield PartialResults((stream, *trial[0]), 1, since_us, block.take(trial[1]))
            rest = block.take(np.flatnonzero(~tried))
        if rest.num_rows:
            yield PartialResults((stream, *order), 1, since_us, rest)

    def _number_tie_breakers(self, stream: int, block: pa.RecordBatch) -> Int64s:
        """Compute a tie-breaking number per tuple.

        With event time, the number does not depend on the order of the rows, which may change when a Spark
        task is run again.
        """
        side = self._spec.graph.sides[stream]
        return np.arange(block.num_rows) if side.time is None else read_times(block, side)

    def _count_comparisons(self, partials: list[PartialResults]) -> None:
        """Count the comparisons of all hops but the last, whose results are not seen by all nodes."""
        for partial in partials:
            if self._refiner is not None and partial.n_members + 1 < self._spec.n_streams:
                self._refiner.count_comparisons(
                    partial.make_hop_key(partial.n_members), partial.block.num_rows
                )

    def _admit(self, inbox: Inbox, clock: Clock) -> list[Fresh]:
        """Drop late tuples, add the place in the global order, and store the share of this node."""
        admitted = []
        self._newest = []
        batches = {n: inbox.batch(n, Role.BOTH) for n in range(self._spec.n_streams)}
        n_new = sum(batch.num_rows for batch in batches.values() if batch is not None)
        for stream, batch in batches.items():
            if batch is None:
                continue
            side = self._spec.graph.sides[stream]
            batch = drop_late(batch, stream, side, clock.late_us, self.counters if self._is_home else None)
            n_rows = batch.num_rows
            if not n_rows:
                continue
            times = read_times(batch, side)
            born = np.full(n_rows, clock.epoch * self._spec.n_streams + stream)
            batch = batch.append_column(BORN, pa.array(born))
            sequence = np.arange(self._arrived[stream], self._arrived[stream] + n_rows)
            self._arrived[stream] += n_rows
            self._newest.append((stream, int(times.max()), n_rows))
            arrivals = NewTuples(stream, sequence, times, self._spec.reach[stream], n_new)
            parts = self._spec.model.assign_parts(self._slot, arrivals)
            for part in range(self._spec.model.n_parts):
                self._store(self._spec.part(stream, part), batch, parts == part)
            if self._spec.model.travel is Travel.STAY:
                # A node that stores a tuple also stores all tuples that it can join with.
                batch = batch.filter(pa.array(parts >= 0))
            if batch.num_rows:
                admitted.append(Fresh(stream, clock.late_us, batch))
        return admitted

    def _store(self, number: int, batch: pa.RecordBatch, is_mine: npt.NDArray[np.bool_]) -> None:
        mine = np.flatnonzero(is_mine)
        if len(mine):
            side = self._spec.stored[number].plan
            batch = batch.take(mine)
            self._stored[number].insert(batch, encode_key_rows(Side.RIGHT, side.condition, batch))
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
            index = self._stored[self._spec.part(hop.target, part)]
            if chosen is None:
                yield from self._probe(partial, hop, index, payload, rows)
            elif len(chosen):
                yield from self._probe(partial, hop, index, payload.take(chosen), rows[chosen])

    def _probe(
        self, partial: PartialResults, hop: Hop, index: ChainedIndex, payload: pa.RecordBatch, rows: Int64s
    ) -> Iterator[list[pa.Array]]:
        """Find partners of partial results in one part of the store."""
        everyone = tuple(sorted((*hop.members, hop.target)))
        is_last = partial.n_members + 1 == self._spec.n_streams
        residual = Residual(hop.plan.condition)
        self.counters.probed += len(rows)
        for found, partner, stored, candidates in index.probe(rows, RowBytes(payload), hop.plan):
            self.counters.candidates += candidates
            found, stored = residual.keep(Side.LEFT, payload, found, partner, stored)
            if not len(found):
                continue
            columns = join_columns(self._spec.graph, hop, payload.take(found), partner.take(stored))
            if is_last:
                self.counters.matched += len(found)
                yield [columns[name] for side in self._spec.graph.sides for name in side.columns]
                continue
            names = [*list_member_columns(self._spec.graph, everyone), BORN]
            block = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
            self._found[partial.path, partial.n_members + 1, partial.since_us].append(block)

    def _count(self, inbox: Inbox) -> None:
        segments = self.state.segments
        counters = self.counters
        counters.received = inbox.received
        counters.received_bytes = inbox.received_bytes
        counters.forwarded = sum(partial.block.num_rows for partial in self.going)
        counters.waiting = self._queue.n_waiting if self._slot == 0 else 0  # all nodes have the same queue
        if self._refiner is not None:
            aliases = [side.alias for side in self._spec.graph.sides]
            orders = zip(aliases, self._refiner.orders, strict=True)
            counters.order = {alias: [aliases[stream] for stream in order] for alias, order in orders}
        counters.count_state(segments)
