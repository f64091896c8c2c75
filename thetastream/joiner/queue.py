"""Who may begin to look for partners: a bound on the tuples that are under way at once.

PSP-I bounds the tuples that are processed concurrently, and with them the partial results on their way. A
new tuple is stored as it comes, so that others find it, and waits for room before it looks for partners
itself; a result does not depend on when it does (``thetastream.joiner.hop``: order). Every node sees all new
tuples in one order and so decides the same without asking.
"""

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from thetastream.joiner.segment import SegmentStore
from thetastream.joiner.unit import Waiting


class Fresh(NamedTuple):
    """Tuples of one stream that begin to look for partners."""

    stream: int
    since_us: int | None
    block: pa.RecordBatch


class Queue:
    """The tuples of all streams that wait, oldest first.

    Parameters
    ----------
    limit : int or None
        Tuples that may be under way at once; None: any number.
    span : int
        Epochs for which a tuple is under way, the one in which it begins included.
    waiting, admitted
        From the state before this epoch.
    store : SegmentStore
        Where blocks of waiting tuples live.
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
        """Tuples that wait."""
        return sum(entry.n_rows - entry.done for entry in self.waiting)

    def admit(self, epoch: int, fresh: list[Fresh]) -> Iterator[Fresh]:
        """Those that may begin in an epoch: of the ones that wait, then of the ones that are new."""
        if self._limit is None:
            yield from fresh
            return
        self.admitted = [(then, n) for then, n in self.admitted if then > epoch - self._span]
        room = free = self._limit - sum(n for _, n in self.admitted)
        # 1. Those that wait.
        for entry in list(self.waiting):
            if not room:
                break
            n = min(room, entry.n_rows - entry.done)
            block = self._store.get_block(entry.id, entry.n_rows)
            yield Fresh(entry.stream, entry.since_us, block.slice(entry.done, n))
            room -= n
            self.waiting.remove(entry)
            if entry.done + n < entry.n_rows:
                self.waiting.insert(0, entry._replace(done=entry.done + n))
            else:
                self._store.drop_block(entry.id)
        # 2. New ones. Whoever finds no room joins the queue.
        for stream, since_us, block in fresh:
            n = min(room, block.num_rows)
            room -= n
            if n:
                yield Fresh(stream, since_us, block.slice(0, n))
            if n < block.num_rows:
                rest = block.slice(n)
                entry = Waiting(uuid.uuid4().hex, stream, since_us, rest.num_rows, 0)
                self._store.put_block(entry.id, rest)
                self.waiting.append(entry)
        if free > room:
            self.admitted.append((epoch, free - room))
