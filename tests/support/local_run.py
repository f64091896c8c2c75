"""Run a query epoch by epoch in this process, with the engines that run on Spark, but without exchange and
state store.

Messages wait in a list between epochs. After each epoch, states are converted to JSON and back, as in the
manifest.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.columns import HASH, SIGN
from thetastream.core.keys import Mask
from thetastream.core.records import decode, encode
from thetastream.core.sides import Role
from thetastream.engine.clock import BEFORE
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import Engine, EngineSpec, OpenStore
from thetastream.engine.routing import reads_hashes
from thetastream.engine.shedding import Shedding
from thetastream.engine.store.segment import MemoryStore


class LocalRun:
    """All units of a query, one epoch at a time.

    Parameters
    ----------
    spec : EngineSpec
        The query, for any engine.
    n_slots : int, optional
        The number of slots on which units may run; by default the number of units.
    shedding : Shedding, optional
        The load shedder of the query. Its lag is measured from ``began_us``.

    Examples
    --------
    Two tuples with |x - y| <= 1, stored and probed in one epoch:

    >>> import pyarrow as pa
    >>> from thetastream.core.condition import Bound, Condition, Dimension, Domain, Key, SideSpec
    >>> from thetastream.core.sides import Side
    >>> from thetastream.engine.two_stream.query import UnitSpec
    >>> from thetastream.engine.two_stream.spec import TwoStreamSpec
    >>> from thetastream.index import IndexSpec, Sorted
    >>> from thetastream.models import Biclique
    >>> side = lambda alias: SideSpec(alias, ("x",), keys=(Key("x", Domain.INT),))
    >>> band = Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, +1))
    >>> condition = Condition((side("a"), side("b")), dimensions=(band,))
    >>> unit = UnitSpec(condition, (IndexSpec(Sorted(), dimensions=(0,)),) * 2, None)
    >>> run = LocalRun(TwoStreamSpec(unit, Biclique(1)))
    >>> batch = lambda *values: pa.RecordBatch.from_pydict({"x": list(values)})
    >>> [[column.to_pylist() for column in piece] for piece in run.epoch([batch(1, 5), batch(2)])]
    [[[1], [2]]]
    """

    def __init__(
        self, spec: EngineSpec, n_slots: int | None = None, shedding: Shedding | None = None
    ) -> None:
        self._spec = spec
        self._shedding = shedding
        self.ends_at_us: int | None = None
        """The watermark behind which no tuple comes, as that of ``th.finish``."""
        self.began_us = 0
        """When the next epoch begins, in microseconds since 1970."""
        self.load: int | None = None
        """The largest load of a unit before the epoch, for a query with a shedder."""
        self._loads: dict[int, int] = {}
        n = n_slots or spec.n_units
        self.states = [spec.state_type() for _ in range(n)]
        """The state of each unit after the last epoch."""
        self.counters: list[Counters] = [Counters() for _ in range(n)]
        """The counters of each unit for the last epoch."""
        self.in_flight: list[Message] = []
        """The messages that units sent in the last epoch."""
        self._stores = [MemoryStore() for _ in range(n)]
        self._is_waiting = False
        self._clock = BEFORE

    def epoch(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None = None
    ) -> Iterator[list[pa.Array]]:
        """Run one epoch over all units and yield the columns of results, piece by piece.

        Parameters
        ----------
        batches : sequence of pyarrow.RecordBatch or None
            The tuples of the epoch by stream, with the columns that the ``SideSpec`` of the stream names.
        watermark_us : int, optional
            The watermark of the epoch in microseconds.
        """
        for slot, inbox in enumerate(self.deliver(batches, watermark_us)):
            yield from self.run(slot, inbox)

    def deliver(
        self, batches: Sequence[pa.RecordBatch | None], watermark_us: int | None = None
    ) -> list[Inbox]:
        """Begin an epoch: fill the inbox of each unit with new tuples and messages."""
        self._clock = self._clock.then(watermark_us)
        if watermark_us is not None and watermark_us == self.ends_at_us:
            self._clock = self._clock._replace(is_last=True)
        self.load = max(self._loads.values(), default=None)
        inboxes = [Inbox() for _ in self.states]
        for stream, batch in enumerate(batches):
            if batch is not None and batch.num_rows:
                probing = None
                if self._shedding is not None:
                    batch, probing = self._shed(self._shedding, stream, batch, inboxes[0])
                for slot, role, block in self._route(stream, batch, probing):
                    inboxes[slot].add(stream, role, 0, block, block.nbytes)
        for message in self.in_flight:
            for slot in self._slots if message.to is None else [message.to]:
                inboxes[slot].deliver(message, 0 if message.block is None else message.block.nbytes)
        self.in_flight, self._is_waiting = [], False
        return inboxes

    @property
    def _slots(self) -> Sequence[int]:
        """The slots that receive messages to all units."""
        return range(len(self.states))

    def open(self, slot: int) -> Engine:
        """Open the engine of one unit for the epoch that ``deliver`` began."""
        # Runs have unique names, so all engines of a unit share a store, as they share Spark's.
        store = self._stores[slot]
        return self._open(slot, self.states[slot], lambda _: store)

    def _open(self, slot: int, state: Any, open_store: OpenStore) -> Engine:
        return self._spec.open(slot, state, open_store)

    def run(self, slot: int, inbox: Inbox, engine: Engine | None = None) -> Iterator[list[pa.Array]]:
        """Run one unit in the epoch that ``deliver`` began. ``engine`` is what ``open`` returned, if it was
        called."""
        engine = engine or self.open(slot)
        yield from engine.epoch(inbox, self._clock)
        if self._shedding is not None:
            for report in inbox.shed:
                alias = self._shedding.sides[report.stream].alias
                engine.counters.count_shed(alias, report.shed, report.shed_probes)
            mlv_bytes = engine.counters.mlv_bytes
            self._loads[slot] = self._shedding.measure_load(mlv_bytes, inbox.shed, self.began_us)
        self.in_flight += [message._replace(sender=slot) for message in engine.messages]
        self.states[slot] = decode(self._spec.state_type, encode(engine.state))
        self.counters[slot] = engine.counters
        self._is_waiting |= engine.is_waiting

    def drain(self, watermark_us: int | None = None) -> Iterator[list[pa.Array]]:
        """Run epochs without new tuples until no message is in flight and no unit waits for another epoch."""
        while self.in_flight or self._is_waiting:
            yield from self.epoch([], watermark_us)

    def _shed(
        self, shedding: Shedding, stream: int, batch: pa.RecordBatch, first: Inbox
    ) -> tuple[pa.RecordBatch, Mask | None]:
        """Drop tuples as the shedder says, and tell the first unit."""
        shedder = shedding.open(stream, self._clock.epoch, self.load)
        kept, probing = shedder.drop(batch if HASH in batch.schema.names else add_hash(batch))
        first.shed += [] if shedder.report is None else [shedder.report]
        return kept, probing

    @cached_property
    def _has_hash(self) -> bool:
        return reads_hashes(self._spec.router.model)

    def _route(
        self, stream: int, batch: pa.RecordBatch, probing: Mask | None = None
    ) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        """Route a batch to units. What Spark hashes has the column ``h``."""
        router = self._spec.router
        if self._has_hash and HASH not in batch.schema.names:
            batch = add_hash(batch)
        return router.route(stream, batch, probing)


def add_hash(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the column ``h``. Spark computes it in Catalyst; here it is slow.

    Inserts and deletes of one row have one hash.
    """
    kept = batch.drop_columns([SIGN]) if SIGN in batch.schema.names else batch
    hashes = np.array([hash(repr(row)) for row in kept.to_pylist()], dtype=np.int64)
    return batch.append_column(HASH, pa.array(hashes))
