"""The queue of tuples that wait before they look for partners. It bounds the number of tuples in flight.

PSP-I bounds the number of tuples that are processed concurrently, and so the number of partial results in
flight. A new tuple is stored when it arrives, so that other tuples find it. It waits until fewer tuples are
in flight, and then looks for partners itself. The results do not depend on the time at which it does so,
because hops follow the global order (``thetastream.engine.multiway.hop``). Every node sees all new tuples in
the same order, so all nodes make the same decisions without messages.
"""

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from thetastream.engine.multiway.query import Horizon
from thetastream.engine.multiway.state import Waiting
from thetastream.engine.store.segment import SegmentStore


class NewOrigins(NamedTuple):
    """Tuples of one stream that begin to look for partners."""

    stream: int
    horizon: Horizon
    """The horizon of the epoch in which these tuples arrived."""
    block: pa.RecordBatch


class Queue:
    """The waiting tuples of all streams, oldest first.

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
