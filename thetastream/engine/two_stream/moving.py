"""Units that hand their stored tuples over when they leave (``thetastream.engine.moved_tuples``).

Tuples that never expire always move. Tuples of a window move if the newest model asks for it
(``moves_tuples`` of its settings).

A model may store copies of a tuple at several units. They would have to move together. Therefore a unit
keeps only the first copy of each tuple (``Model.first_copies``) from the end of the last epoch in which
it stores new tuples. Newer tuples probe where first copies can be (``Model.probe_first_copies``). So each
tuple is at one unit of the older generation, and the units need not move it at the same time.

A unit that leaves may still receive tuples that were on their way to it. It moves them on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from thetastream.core.blocks import Matches
from thetastream.core.sides import Side
from thetastream.engine.clock import Clock
from thetastream.engine.counters import SendingCounters
from thetastream.engine.inbox import Inbox, Message, Peers
from thetastream.engine.moved_tuples import MOVED_TUPLES, read_tuples, send_tuples
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.store.box import encode_key_rows
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit
from thetastream.models.base import Model, moves_tuples


@dataclass(frozen=True)
class MovingSpec(ExtendedSpec):
    """A join of two streams whose stored tuples may move to newer units when their unit leaves."""

    most_tuples: int = MOVED_TUPLES
    """How many tuples of each stream a unit sends in an epoch at most."""

    state_type: ClassVar[type[UnitState]] = UnitState
    has_messages: ClassVar[bool] = True

    @property
    def router(self) -> Router:
        """The router of the join. Units of older generations hold only the first copy of each tuple."""
        return replace(self.join.router, probes_first_copies=True)

    def list_moving(self, newest: Model) -> tuple[Side, ...]:
        """List the sides whose tuples move to units of the newest model."""
        stored = {side: self.join.unit.describe_stored(side) for side in Side}
        return tuple(side for side in Side if moves_tuples(newest) or stored[side].lifetime_us is None)

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
        moving = self._list_moving(inbox.peers)
        if inbox.peers.has_left(clock.epoch):
            for side in moving:
                self._send(side, inbox.peers, inbox.received)
        elif inbox.peers.last_epoch == clock.epoch:
            self._drop_copies()
        self.is_waiting = any(self._indexes[side].segments for side in moving)
        self.finish(inbox)

    def _list_moving(self, peers: Peers) -> tuple[Side, ...]:
        """List the sides whose tuples this unit sends, now or in the next epoch."""
        return () if peers.last_epoch is None else self._moving.list_moving(peers.generations[0][0])

    def _receive(self, messages: Sequence[Message], is_leaving: bool) -> None:
        """Store the tuples of messages. A unit that leaves stores only first copies."""
        for stream, payload in read_tuples(messages):
            side = Side(stream)
            if is_leaving:
                is_first = self._moving.router.find_first_copies(self._slot, side, payload)
                payload = payload.take(np.flatnonzero(is_first))
            self._indexes[side].insert(payload, encode_key_rows(side, self._keyed_by, payload))

    def _drop_copies(self) -> None:
        """Keep the first copy of each stored tuple, and drop the other copies."""
        for side, index in self._indexes.items():
            index.retain(partial(self._moving.router.find_first_copies, self._slot, side))

    def _send(self, side: Side, peers: Peers, n_received: int) -> None:
        """Take tuples of one side out of the store, and send them to units of the newest generation."""
        router = self._moving.with_model(peers.generations[0][0]).router
        n_sent, messages = send_tuples(
            self._indexes[side], side, self._moving.most_tuples, n_received, router, peers
        )
        self._sent += messages
        assert isinstance(self.counters, SendingCounters)
        self.counters.forwarded += n_sent
