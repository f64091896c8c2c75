"""Units that hand their stored tuples over when they leave, for tuples that never expire.

    end of epoch e        the unit that leaves takes some tuples out of its store, and sends them
    start of epoch e + 1  a unit of the newest generation stores them, before any tuple of the epoch probes

Each probe of an epoch finds a tuple at the unit that stores it in this epoch. Spark's epoch barrier separates
the two moments, so a tuple that moves is never stored at both units or at none. State and messages belong to
one epoch, so an epoch that runs again sends the same tuples.

A model may store copies of a tuple at several units. They would have to move together. Therefore a unit
keeps only the first copy of each tuple (``Model.find_first_copies``) from the end of the last epoch in which
it stores new tuples. Newer tuples probe where first copies can be (``Model.probe_first_copies``). So each
tuple is at one unit of the older generation, and the units need not move it at the same time.

A unit that leaves may still receive tuples that were on their way to it. It moves them on.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from thetastream.core.blocks import concat
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.clock import Clock
from thetastream.engine.counters import SendingCounters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.matching import Matches
from thetastream.engine.peers import Peers
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router, take_blocks
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit

MOVED_TUPLES = 1 << 16
MOVED_BYTES = 1 << 23
"""The largest number of tuples of each stream, and of their bytes in memory, that a unit sends in an epoch.
These limits bound the time that a change adds to an epoch."""
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio."""


@dataclass(frozen=True)
class MovingSpec(ExtendedSpec):
    """A join of two streams whose stored tuples move to newer units when their unit leaves."""

    most_tuples: int = MOVED_TUPLES
    """How many tuples of each stream a unit sends in an epoch at most."""

    state_type: ClassVar[type[UnitState]] = UnitState
    has_messages: ClassVar[bool] = True

    @property
    def router(self) -> Router:
        """The router of the join. Units of older generations hold only the first copy of each tuple."""
        return replace(self.join.router, probes_first_copies=True)

    @property
    def endless(self) -> tuple[Side, ...]:
        """The sides whose tuples never expire."""
        return tuple(side for side in Side if self.join.unit.describe_stored(side).lifetime_us is None)

    def open(self, slot: int, state: UnitState, open_store: OpenStore) -> "MovingUnit":
        """Open the unit ``slot``."""
        return MovingUnit(self, slot, state, open_store(self.join.unit.plans))


class MovingUnit(Unit):
    """A unit that stores the tuples that it receives in messages, and sends its own when it leaves."""

    counters_type = SendingCounters

    def __init__(self, spec: MovingSpec, slot: int, state: UnitState, store: SegmentStore) -> None:
        super().__init__(spec.join.unit, spec.join.model, slot, state, store)
        self._moving = spec
        self._sent: list[Message] = []
        self.messages = self._sent
        self.is_waiting = False

    def matches(self, inbox: Inbox, clock: Clock) -> Iterator[Matches]:
        """Run one epoch and yield its matches."""
        self._receive(inbox.messages, is_leaving=inbox.peers.has_left(clock.epoch))
        yield from self.join(inbox, clock)
        self.expire(clock)
        if inbox.peers.has_left(clock.epoch):
            for side in self._moving.endless:
                self._send(side, inbox.peers)
        elif inbox.peers.last_epoch == clock.epoch:
            self._drop_copies()
        is_leaving = inbox.peers.last_epoch is not None
        self.is_waiting = is_leaving and any(self._indexes[side].segments for side in self._moving.endless)
        self.finish(inbox)

    def _receive(self, messages: Sequence[Message], is_leaving: bool) -> None:
        """Store the tuples of messages. A unit that leaves stores only first copies."""
        for side in Side:
            blocks = [one.block for one in messages if Side(json.loads(one.header)["stream"]) is side]
            received = [block for block in blocks if block is not None]
            if received:
                payload = concat(received)
                if is_leaving:
                    is_first = self._moving.router.find_first_copies(self._slot, side, payload)
                    payload = payload.take(np.flatnonzero(is_first))
                self._indexes[side].insert(payload, encode_key_rows(side, self._keyed_by, payload))

    def _drop_copies(self) -> None:
        """Keep the first copy of each stored tuple, and drop the other copies."""
        for side, index in self._indexes.items():
            index.retain(partial(self._moving.router.find_first_copies, self._slot, side))

    def _send(self, side: Side, peers: Peers) -> None:
        """Take tuples of one side out of the store, and send them to units of the newest generation."""
        payload = self._indexes[side].remove_part(self._moving.most_tuples, MOVED_BYTES)
        if payload is None:
            return
        model, slots = peers.generations[0]
        router = self._moving.with_model(model).router
        routes = router.find_store_routes(side, payload, _scatter(payload.num_rows))
        header = json.dumps({"stream": int(side)})
        self._sent += [Message(header, block, slots[unit]) for unit, _, block in take_blocks(payload, routes)]
        assert isinstance(self.counters, SendingCounters)
        self.counters.forwarded += payload.num_rows


def _scatter(n: int) -> Int64s:
    """Return n numbers that spread evenly, in place of the hashes of tuples, which are not stored.

    >>> np.bincount(_scatter(3000) % 3).tolist()
    [1012, 988, 1000]
    """
    mixed = np.arange(n, dtype=np.uint64) * np.uint64(_GOLDEN)
    return (mixed >> np.uint64(33)).astype(np.int64)
