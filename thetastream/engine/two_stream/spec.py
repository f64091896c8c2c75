"""The engine of two-stream joins: a query under a model whose units send no messages."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

from thetastream.core.condition import Condition
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.two_stream.content_routing import choose_placing
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.unit import Unit
from thetastream.index.base import IndexSpec
from thetastream.models.base import Model


@dataclass(frozen=True)
class TwoStreamSpec:
    """A join of two streams under a model whose units send no messages."""

    unit: UnitSpec
    model: Model

    state_type: ClassVar[type[UnitState]] = UnitState
    has_messages: ClassVar[bool] = False
    partner_streams: ClassVar[tuple[int, ...]] = ()
    scaling_obstacle: ClassVar[str | None] = None

    @property
    def condition(self) -> Condition:
        """The condition of the join."""
        return self.unit.condition

    @property
    def n_units(self) -> int:
        """The number of units of the model."""
        return self.model.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return self.unit.has_event_time

    @cached_property
    def router(self) -> Router:
        """The router of the model, with the places of tuples if the model routes by content."""
        found = choose_placing(self.model, self.unit.condition)
        return Router(self.model, None if found is None else found.find_places)

    def with_model(self, model: Model) -> "TwoStreamSpec":
        """Return the same join under another model."""
        return replace(self, model=model)

    def with_condition(
        self, condition: Condition, indexes: tuple[IndexSpec, IndexSpec], archive_period_us: int | None
    ) -> "TwoStreamSpec":
        """Return a join of another condition under the same model."""
        return TwoStreamSpec(UnitSpec(condition, indexes, archive_period_us), self.model)

    def open(self, slot: int, state: UnitState, open_store: OpenStore) -> Unit:
        """Open the unit ``slot``."""
        return Unit(self.unit, self.model, slot, state, open_store(self.unit.plans))


@dataclass(frozen=True)
class ExtendedSpec:
    """The base of specs whose units extend those of a two-stream join.

    A subclass defines ``state_type`` and ``open``.
    """

    join: TwoStreamSpec

    has_messages: ClassVar[bool] = False

    @property
    def n_units(self) -> int:
        """The number of units of the join."""
        return self.join.n_units

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return self.join.has_event_time

    @property
    def router(self) -> Router:
        """The router of the join."""
        return self.join.router

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs; None if they can."""
        return self.join.scaling_obstacle

    @property
    def partner_streams(self) -> tuple[int, ...]:
        """The streams in which tuples look for partners that they must all meet at one unit."""
        return self.join.partner_streams

    def with_model(self, model: Model) -> Self:
        """Return the same query under another model."""
        return replace(self, join=self.join.with_model(model))
