"""The handshake chain run epoch by epoch in this process: the same workers as on Spark, less the mailbox."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from thetastream.joiner.chain_join import ChainJoin
from thetastream.joiner.clock import BEFORE, Clock
from thetastream.joiner.handshake import ChainInbox, ChainWorker, Letter
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.unit import Counters, Matches, UnitState
from thetastream.types import Side


class LocalChain:
    """State of all workers and the letters between them.

    Parameters
    ----------
    spec : ChainJoin
        The query.
    """

    def __init__(self, spec: ChainJoin) -> None:
        self._spec = spec
        n = spec.model.n_units
        self._stores = [MemoryStore() for _ in range(n)]
        self.states = [UnitState() for _ in range(n)]
        """Per worker, after the last epoch."""
        self.counters: list[Counters] = [Counters() for _ in range(n)]
        """Per worker, of the last epoch."""
        self.blocks = [0] * n
        """Per worker, the block of the last epoch."""
        self._in_flight: list[tuple[int, int, Letter]] = []
        self._is_waiting = False
        self._clock = BEFORE

    def epoch(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, watermark_us: int | None = None
    ) -> Iterator[Matches]:
        """Run one epoch over all workers: new tuples, and what is in flight.

        Parameters
        ----------
        left, right : pyarrow.RecordBatch or None
            The epoch's tuples, with the columns the condition's ``SideSpec`` names.
        watermark_us : int, optional
            Watermark of the epoch in microseconds.
        """
        self._clock = self._clock.then(watermark_us)
        for place, inbox in enumerate(self.deliver((left, right))):
            yield from self.run(place, inbox, self._clock)

    def deliver(self, batches: Sequence[pa.RecordBatch | None]) -> list[ChainInbox]:
        """What the next epoch brings each worker."""
        is_quiet = not any(batch is not None and batch.num_rows for batch in batches)
        inboxes = [ChainInbox(is_quiet=is_quiet) for _ in self.states]
        for side, batch in zip(Side, batches, strict=True):
            if batch is not None and batch.num_rows:
                inboxes[self._spec.model.end(side)].tuples[side] = batch
        for sender, to, letter in self._in_flight:
            inboxes[to].letters[sender > to].append(letter)
        self._in_flight, self._is_waiting = [], False
        return inboxes

    def run(self, place: int, inbox: ChainInbox, clock: Clock) -> Iterator[Matches]:
        """Run one worker's epoch."""
        worker = ChainWorker(self._spec, place, self.states[place], self._stores[place])
        yield from worker.epoch(inbox, clock)
        self._in_flight += [(place, to, letter) for to, letter in worker.sent]
        self.states[place] = worker.state
        self.counters[place] = worker.counters
        self.blocks[place] = worker.block
        self._is_waiting |= worker.is_waiting

    def drain(self, watermark_us: int | None = None) -> Iterator[Matches]:
        """Epochs without new tuples until nobody has anything to say."""
        while self._in_flight or self._is_waiting:
            yield from self.epoch(None, None, watermark_us)
