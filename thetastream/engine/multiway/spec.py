"""The spec of the multi-way engine, whose nodes send each other partial results."""

from dataclasses import dataclass, replace
from typing import ClassVar

from thetastream.engine.multiway.arrival_router import ArrivalRouter
from thetastream.engine.multiway.node import MultiwayNode
from thetastream.engine.multiway.query import MultiwayQuery, MultiwayState
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.models.multiway import Multiway


@dataclass(frozen=True)
class MultiwaySpec(MultiwayQuery):
    """A join of two or more streams, hop by hop, under a multi-way model."""

    state_type: ClassVar[type[MultiwayState]] = MultiwayState
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = None

    @property
    def n_units(self) -> int:
        """The number of nodes of the model."""
        return self.model.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return any(side.time is not None for side in self.graph.sides)

    @property
    def has_messages(self) -> bool:
        """Whether partial results are sent to the next epoch."""
        return self.model.has_mailbox(self.n_streams)

    @property
    def router(self) -> Router:
        """The router. It sends every tuple to every node, unless the model chooses the nodes."""
        return ArrivalRouter(self.model, query=self) if self.model.chooses_receivers else Router(self.model)

    def with_model(self, model: Multiway) -> "MultiwaySpec":
        """Return the same query under another model, which may divide stored tuples into other parts.

        Hops stay where they are: a ring that makes them in one epoch becomes another one that does.
        """
        if self.model.stored_once is not None:
            model = model.store_once(self.model.stored_once)
        streams = [self.stored[self.part(stream, 0)] for stream in range(self.n_streams)]
        parts = [stored for stored in streams for _ in range(model.n_parts)]
        stored = tuple(replace(one, stream=number) for number, one in enumerate(parts))
        return replace(self, model=model, stored=stored)

    def open(self, slot: int, state: MultiwayState, open_store: OpenStore) -> MultiwayNode:
        """Open the node ``slot``."""
        store = open_store({stored.stream: stored.plan for stored in self.stored})
        query = replace(self, model=self.model.resume(state.stored_once))
        return MultiwayNode(query, slot, state, store)
