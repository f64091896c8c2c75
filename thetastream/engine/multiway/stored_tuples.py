"""The tuples that a node of a multi-way join stores: an index for each part of each stream.

A node that leaves may send its tuples to the newest nodes (``thetastream.engine.moved_tuples``). In PSP, this
is aggressive relocation. A stored tuple keeps its place in the global order wherever it is, so a partial
result that is in flight finds it at its new node exactly if it would have found it at the old one.
"""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from thetastream.core.sides import Side
from thetastream.engine.inbox import Message, Peers
from thetastream.engine.moved_tuples import read_tuples, send_tuples
from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.engine.routing import Router
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.chained_index import ChainedIndex
from thetastream.engine.store.segment import SegmentMeta, SegmentStore


class StoredTuples:
    """The stored tuples of one node.

    Parameters
    ----------
    query : MultiwayQuery
    segments : sequence of SegmentMeta
        The segments before this epoch, from the state.
    store : SegmentStore
        The store that holds the runs.
    """

    def __init__(self, query: MultiwayQuery, segments: Sequence[SegmentMeta], store: SegmentStore) -> None:
        self._query = query
        self.indexes = [
            ChainedIndex(stored, [meta for meta in segments if meta.stream == number], store)
            for number, stored in enumerate(query.stored)
        ]
        """The indexes, by the numbers that ``MultiwayQuery.part`` returns."""
        self._moving: list[int] = []

    @property
    def segments(self) -> list[SegmentMeta]:
        """The segments of all indexes."""
        return [meta for index in self.indexes for meta in index.segments]

    def insert(self, number: int, batch: pa.RecordBatch) -> None:
        """Insert tuples into one of the indexes."""
        condition = self._query.stored[number].plan.condition
        self.indexes[number].insert(batch, encode_key_rows(Side.RIGHT, condition, batch))

    def expire(self, horizons: Sequence[int | None]) -> int:
        """Drop the tuples that nothing can join any more, given the horizon of each stream; return their
        number."""
        n_expired = 0
        for number, index in enumerate(self.indexes):
            horizon = horizons[number // self._query.model.n_parts]
            n_expired += index.expire(horizon)
            index.archive(horizon)
        return n_expired

    def clear(self) -> int:
        """Drop all tuples; return their number."""
        return sum(index.clear() for index in self.indexes)

    def write(self) -> None:
        """Write new segments to durable storage. Call this once, at the end of the epoch."""
        for index in self.indexes:
            index.write()

    # Tuples that move

    def prepare_moves(self, peers: Peers) -> None:
        """Find the streams whose tuples this node sends, now or in the next epoch."""
        if peers.last_epoch is not None and self._query.model.can_move_tuples:
            self._moving = self._query.list_moving(peers.generations[0][0])

    @property
    def has_to_move(self) -> bool:
        """Whether this node still has tuples to send."""
        return any(self.indexes[stream].segments for stream in self._moving)

    def receive(self, messages: Iterable[Message]) -> None:
        """Store the tuples that messages move to this node."""
        for stream, batch in read_tuples(messages):
            self.insert(stream, batch)

    def send(self, peers: Peers, n_received: int) -> Iterator[tuple[int, list[Message]]]:
        """Take tuples out of the store, in an epoch in which the node receives ``n_received``. Yield their
        number and the messages that move them to the newest nodes."""
        if not self._moving:
            return
        router = Router(peers.generations[0][0])
        most = self._query.most_moved
        for stream in self._moving:
            yield send_tuples(self.indexes[stream], stream, most, n_received, router, peers)
