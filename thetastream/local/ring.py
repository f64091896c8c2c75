"""The ring run epoch by epoch in this process: the same nodes as on Spark, less exchange and mailbox."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from thetastream.joiner.clock import BEFORE, Clock
from thetastream.joiner.ring import Message, RingInbox, RingNode, RingSpec
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.unit import Counters, UnitState


class LocalRing:
    """State of all nodes and the messages between them.

    Parameters
    ----------
    spec : RingSpec
        From ``thetastream.plan.ring``.
    """

    def __init__(self, spec: RingSpec) -> None:
        self._spec = spec
        n = spec.model.n_units
        self._stores = [MemoryStore() for _ in range(n)]
        self.states = [UnitState() for _ in range(n)]
        """Per node, after the last epoch."""
        self._clock = BEFORE
        self.in_flight: list[Message] = []
        self._is_waiting = False
        self.counters: list[Counters] = [Counters() for _ in range(n)]
        """Per node, of the last epoch."""

    def epoch(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None = None
    ) -> Iterator[list[pa.Array]]:
        """Run one epoch over all nodes: new tuples of each stream, and what is in flight.

        Parameters
        ----------
        batches : sequence of pyarrow.RecordBatch or None
            The epoch's tuples by stream, with the columns its ``SideSpec`` names.
        watermark_us : int, optional
            Watermark of the epoch in microseconds.
        """
        self._clock = self._clock.then(watermark_us)
        for slot, inbox in enumerate(self.deliver(batches)):
            yield from self.run(slot, inbox, self._clock)

    def deliver(self, batches: Sequence[pa.RecordBatch | None]) -> list[RingInbox]:
        """What the next epoch brings each node."""
        tuples = {n: batch for n, batch in enumerate(batches) if batch is not None and batch.num_rows}
        under_way, self.in_flight = self.in_flight, []
        return [
            RingInbox(tuples, [message for message in under_way if message.to in (None, slot)])
            for slot in range(len(self.states))
        ]

    def run(self, slot: int, inbox: RingInbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one node's epoch."""
        node = RingNode(self._spec, slot, self.states[slot], self._stores[slot])
        yield from node.epoch(inbox, clock)
        self.in_flight += node.messages
        self.states[slot] = node.state
        self.counters[slot] = node.counters
        self._is_waiting = node.is_waiting

    def drain(self, watermark_us: int | None = None) -> Iterator[list[pa.Array]]:
        """Epochs without new tuples until nothing is in flight."""
        while self.in_flight or self._is_waiting:
            yield from self.epoch([None] * self._spec.n_streams, watermark_us)
