"""The protocol of engines, through which an epoch, a local run or a conformance test uses any engine.

    state, inbox, clock  ->  results, messages, counters, state

An *engine spec* holds the fixed properties of a query and travels to the workers. For every unit and epoch it
opens an *engine* on the state of the unit. The engine runs one epoch; afterwards the caller reads its new
state, messages and counters. Engines are pure: they import no Spark and read no clock. A unit remembers
nothing outside its state and its store.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from thetastream.engine.clock import Clock
from thetastream.engine.counters import Counters
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.routing import Router
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.segment import SegmentStore

OpenStore = Callable[[Mapping[int, IndexPlan]], SegmentStore]
"""A function that opens the store of a unit, given the index plan of each stream."""


class Engine(Protocol):
    """One unit in one epoch."""

    @property
    def counters(self) -> Counters:
        """The counters of the epoch."""

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run the epoch and yield the columns of results, piece by piece.

        Exhaust the iterator before you read ``state``, ``messages``, ``is_waiting`` and ``counters``.
        """

    @property
    def state(self) -> Any:
        """The state after the epoch. Its type is the ``state_type`` of the spec."""

    @property
    def messages(self) -> Sequence[Message]:
        """The messages that the unit sends. They are delivered in the next epoch, in this order."""

    @property
    def is_waiting(self) -> bool:
        """Whether the unit needs another epoch even if no new tuples arrive."""


class EngineSpec(Protocol):
    """The fixed properties of a query. A spec is frozen and picklable."""

    @property
    def state_type(self) -> type[Any]:
        """The type of the state, a record (``thetastream.core.records``) that the manifest of a unit keeps.

        Without arguments, its constructor builds the state before the first epoch.
        """

    @property
    def n_units(self) -> int:
        """The number of units, which are numbered from 0."""

    @property
    def router(self) -> Router:
        """The router that sends tuples to units."""

    @property
    def has_event_time(self) -> bool:
        """Whether any stream has an event time. If so, the query has a watermark."""

    @property
    def has_messages(self) -> bool:
        """Whether units send messages."""

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs, as a clause; None if they can."""

    @property
    def partner_streams(self) -> tuple[int, ...]:
        """The streams in which tuples look for partners that they must all meet at one unit.

        It is empty if a pair may be found at any unit.
        """

    def with_model(self, model: Any) -> "EngineSpec":
        """Return the same query under another model that this engine runs."""

    def open(self, slot: int, state: Any, open_store: OpenStore) -> Engine:
        """Open the engine of the unit ``slot`` on its state before the epoch."""
