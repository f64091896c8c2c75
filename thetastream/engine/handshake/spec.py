"""The spec of the handshake engine, whose workers forward tuples to their neighbours."""

from dataclasses import dataclass, replace
from typing import ClassVar

from thetastream.core.condition import Condition
from thetastream.engine.handshake.query import HandshakeQuery, HandshakeState
from thetastream.engine.handshake.worker import HandshakeWorker
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.index.base import IndexSpec
from thetastream.models.chain import Chain


@dataclass(frozen=True)
class HandshakeSpec(HandshakeQuery):
    """A join of two streams under ``th.Chain``."""

    state_type: ClassVar[type[HandshakeState]] = HandshakeState
    has_messages: ClassVar[bool] = True
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = None

    @property
    def n_units(self) -> int:
        """The number of workers of the chain."""
        return self.model.workers

    @property
    def router(self) -> Router:
        """The router, which sends new tuples to the ends of the chain."""
        return Router(self.model)

    def with_model(self, model: Chain) -> "HandshakeSpec":
        """Return the same query under another model."""
        return replace(self, model=model)

    def with_condition(
        self, condition: Condition, indexes: tuple[IndexSpec, IndexSpec], archive_period_us: int | None
    ) -> "HandshakeSpec":
        """Return a join of another condition under the same model."""
        return HandshakeSpec(condition, indexes, archive_period_us, self.model)

    def open(self, slot: int, state: HandshakeState, open_store: OpenStore) -> HandshakeWorker:
        """Open the worker at place ``slot``."""
        return HandshakeWorker(self, slot, state, open_store(self.plans))
