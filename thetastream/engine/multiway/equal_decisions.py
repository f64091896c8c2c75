"""The decisions that all nodes of a multi-way join make alike, each for itself and without messages.

Every node of a ring sees all new tuples and all partial results, in the same order. So all nodes number the
tuples alike, let the same tuples wait (``Queue``), and give tuples the same hop orders (``hop_orders``). If
nodes decided differently, results would be lost. A node that joins while the query runs has not seen the
earlier tuples. A node that leaves sends it the state of the decisions and the tuples that wait
(``make_messages``, ``take_over``). From then on it decides like the others.

Nodes of ATR and CTR see some of the tuples only. They number the tuples too, but nothing reads these numbers:
segments follow from event times, no tuple waits, and hop orders stay as planned.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.core.records import decode, encode
from thetastream.engine.arrival import Numbers, number_arrivals, read_times
from thetastream.engine.inbox import Message
from thetastream.engine.multiway.graph import HopKey
from thetastream.engine.multiway.hop_orders import Refiner
from thetastream.engine.multiway.partial_results import PartialResults
from thetastream.engine.multiway.query import Horizon, MultiwayQuery, MultiwayState, Waiting, combine_horizons
from thetastream.engine.store.segment import SegmentStore

DECISIONS, WAITING = "decisions", "waiting"
"""The headers of messages to nodes that join. The other messages are partial results."""


class NewOrigins(NamedTuple):
    """Tuples of one stream that begin to look for partners."""

    stream: int
    horizon: Horizon
    """The horizon of the epoch in which these tuples arrived."""
    block: pa.RecordBatch


class EqualDecisions:
    """The decisions of one epoch.

    Parameters
    ----------
    query : MultiwayQuery
    state : MultiwayState
        The state before this epoch, of this node or of a node that decided alike.
    store : SegmentStore
        The store that keeps the blocks of waiting tuples.
    """

    def __init__(self, query: MultiwayQuery, state: MultiwayState, store: SegmentStore) -> None:
        self._query = query
        self._store = store
        self._arrived = list(state.arrived or (0,) * query.n_streams)
        self._newest: list[tuple[int, int, int]] = []
        self.queue = Queue(query.model.in_flight, query.n_streams - 1, state.waiting, state.admitted, store)
        """The tuples that wait before they look for partners."""
        refinement = query.refinement
        self.refiner = None if refinement is None else Refiner(refinement, query.orders, state.measured)
        """The hop orders that follow measured selectivities; None if hop orders stay as planned."""

    @property
    def state(self) -> MultiwayState:
        """The state of the decisions, without segments."""
        measured = None if self.refiner is None else self.refiner.measured
        return MultiwayState([], tuple(self._arrived), self.queue.waiting, self.queue.admitted, measured)

    def find_horizon(self, late_us: int | None) -> Horizon:
        """Return the horizon of an epoch. Call this before its tuples have numbers."""
        return late_us if self._query.graph.counts is None else tuple(n - 1 for n in self._arrived)

    def number(self, stream: int, times: Int64s) -> Int64s:
        """Number the new tuples of a stream in the order of their source, given their event times."""
        first = self._arrived[stream]
        self._note_arrivals(stream, len(times), int(times.max()))
        return np.arange(first, first + len(times))

    def number_arrivals(self, times: Sequence[Int64s]) -> tuple[Numbers, ...]:
        """Number the new tuples of all streams in the order of arrival, as count windows need them."""
        numbers = number_arrivals(times, self._arrived)
        for stream, mine in enumerate(times):
            if len(mine):
                self._note_arrivals(stream, len(mine), self._arrived[stream] + len(mine) - 1)
        return numbers

    def _note_arrivals(self, stream: int, n: int, latest: int) -> None:
        self._arrived[stream] += n
        self._newest.append((stream, latest, n))

    def count_share(self, stream: int, n: int) -> None:
        """Count ``n`` of the new tuples of a stream as stored, at a node that makes all hops itself."""
        self._newest = [(one, latest, n if one == stream else known) for one, latest, known in self._newest]

    def begin(
        self, epoch: int, horizon: Horizon, fresh: list[NewOrigins], received: Iterable[PartialResults]
    ) -> list[PartialResults]:
        """Return the tuples that begin to look for partners in an epoch, as partial results.

        ``received`` are the partial results that all nodes have received in the epoch.
        """
        beginning = list(self.queue.admit(epoch, fresh))
        if self.refiner is not None:
            self.refiner.count_results(list_last_hops(received))
            self.refiner.count_arrivals(self._newest, combine_horizons([horizon], self._query.n_streams))
            if beginning:
                self.refiner.choose()
        return [partial for tuples in beginning for partial in self._order_hops(tuples)]

    def count_comparisons(self, partials: Iterable[PartialResults]) -> None:
        """Count the comparisons of all hops but the last, whose results are not seen by all nodes."""
        for partial in partials:
            if self.refiner is not None and partial.n_members + 1 < self._query.n_streams:
                self.refiner.count_comparisons(
                    partial.make_hop_key(partial.n_members), partial.block.num_rows
                )

    def count_results(self, found: Iterable[tuple[HopKey, int]]) -> None:
        """Count the partial results of the hops of an epoch, at a node that makes all hops itself."""
        if self.refiner is not None:
            self.refiner.count_results_at_once(found)

    def _order_hops(self, beginning: NewOrigins) -> Iterator[PartialResults]:
        """Convert tuples that begin to look for partners to partial results. Some try another hop order."""
        stream, horizon, block = beginning
        if self.refiner is None:
            yield PartialResults((stream, *self._query.orders[stream]), 1, horizon, block)
            return
        order, rest = self.refiner.orders[stream], block
        side = self._query.graph.sides[stream]
        # With event time, a tie-breaking number does not depend on the order of the rows, which may change
        # when a Spark task is run again.
        ties = np.arange(block.num_rows) if side.time is None else read_times(block, side)
        trial = self.refiner.assign_trial(stream, ties)
        if trial is not None and len(trial[1]):
            tried = np.isin(np.arange(block.num_rows), trial[1])
            yield PartialResults((stream, *trial[0]), 1, horizon, block.take(trial[1]))
            rest = block.take(np.flatnonzero(~tried))
        if rest.num_rows:
            yield PartialResults((stream, *order), 1, horizon, rest)

    # Nodes that join

    def make_messages(self) -> Iterator[Message]:
        """Yield the decisions and the waiting tuples as messages to all nodes."""
        yield Message(json.dumps([DECISIONS, encode(self.state)]))
        for entry in self.queue.waiting:
            yield Message(json.dumps([WAITING, entry.id]), self._store.get_block(entry.id, entry.n_rows))


def list_last_hops(found: Iterable[PartialResults]) -> Iterator[tuple[HopKey, int]]:
    """Yield the hop that found partial results, and their number."""
    for partial in found:
        yield partial.make_hop_key(partial.n_members - 1), partial.block.num_rows


def take_over(
    query: MultiwayQuery, messages: Sequence[Message], store: SegmentStore
) -> EqualDecisions | None:
    """Take over decisions from the messages of ``make_messages``; None if there are none."""
    state = None
    for message in messages:
        kind, value = json.loads(message.header)
        if kind == DECISIONS:
            state = decode(MultiwayState, value)
        else:
            assert message.block is not None
            store.put_block(value, message.block)
    return None if state is None else EqualDecisions(query, state, store)


def is_decision(message: Message) -> bool:
    """Whether a message holds decisions or waiting tuples, and no partial results."""
    return json.loads(message.header)[0] in (DECISIONS, WAITING)


class Queue:
    """The tuples of all streams that wait before they look for partners, oldest first.

    PSP-I bounds the number of tuples that are processed concurrently, and so the number of partial results in
    flight. A new tuple is stored when it arrives, so that other tuples find it. It waits until fewer tuples
    are in flight, and then looks for partners itself. The results do not depend on the time at which it does
    so, because hops follow the global order (``thetastream.engine.multiway.hop``).

    Parameters
    ----------
    limit : int or None
        The number of tuples that may be in flight at the same time; None means any number.
    span : int
        The number of epochs for which a tuple is in flight, including the epoch in which it begins.
    waiting, admitted
        The fields of the state before this epoch.
    store : SegmentStore
        The store that keeps the blocks of waiting tuples.
    """

    def __init__(
        self,
        limit: int | None,
        span: int,
        waiting: list[Waiting],
        admitted: list[tuple[int, int]],
        store: SegmentStore,
    ) -> None:
        self._limit = limit
        self._span = span
        self._store = store
        self.waiting = list(waiting)
        self.admitted = list(admitted)

    @property
    def n_waiting(self) -> int:
        """The number of waiting tuples."""
        return sum(entry.n_rows - entry.done for entry in self.waiting)

    def admit(self, epoch: int, fresh: list[NewOrigins]) -> Iterator[NewOrigins]:
        """Yield the tuples that may begin in an epoch: first waiting tuples, then new tuples."""
        if self._limit is None:
            yield from fresh
            return
        self.admitted = [(then, n) for then, n in self.admitted if then > epoch - self._span]
        room = free = self._limit - sum(n for _, n in self.admitted)
        # 1. Admit waiting tuples.
        for entry in list(self.waiting):
            if not room:
                break
            n = min(room, entry.n_rows - entry.done)
            block = self._store.get_block(entry.id, entry.n_rows)
            yield NewOrigins(entry.stream, entry.horizon, block.slice(entry.done, n))
            room -= n
            self.waiting.remove(entry)
            if entry.done + n < entry.n_rows:
                self.waiting.insert(0, entry._replace(done=entry.done + n))
            else:
                self._store.drop_block(entry.id)
        # 2. Admit new tuples. The rest joins the queue.
        for stream, horizon, block in fresh:
            n = min(room, block.num_rows)
            room -= n
            if n:
                yield NewOrigins(stream, horizon, block.slice(0, n))
            if n < block.num_rows:
                rest = block.slice(n)
                entry = Waiting(uuid.uuid4().hex, stream, horizon, rest.num_rows, 0)
                self._store.put_block(entry.id, rest)
                self.waiting.append(entry)
        if free > room:
            self.admitted.append((epoch, free - room))
