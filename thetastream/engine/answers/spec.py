"""The spec of outer, semi and anti joins."""

from dataclasses import dataclass
from typing import Any, ClassVar

from thetastream.core.how import How
from thetastream.core.ranking import Ranking
from thetastream.engine.answers.nearest import NearestState, NearestUnit
from thetastream.engine.answers.unit import AnsweringUnit, AnswersState
from thetastream.engine.protocol import OpenStore
from thetastream.engine.two_stream.spec import ExtendedSpec


@dataclass(frozen=True)
class AnswersSpec(ExtendedSpec):
    """A join of two streams that answers each tuple of its preserved streams.

    The model must show every preserved tuple all its partners at one unit (``Model.sees_partners``).
    """

    how: How

    state_type: ClassVar[type[Any]] = AnswersState

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs."""
        return (
            f"how={self.how.name!r} answers each tuple at the unit that stores it, and partners that came "
            "earlier lie at units of older generations"
        )

    def open(self, slot: int, state: AnswersState, open_store: OpenStore) -> AnsweringUnit:
        """Open the unit ``slot``."""
        return AnsweringUnit(self.join, self.how, slot, state, open_store(self.join.unit.plans))


@dataclass(frozen=True)
class NearestSpec(AnswersSpec):
    """A join of two streams that finds the nearest partners of each left tuple."""

    ranking: Ranking

    state_type: ClassVar[type[Any]] = NearestState

    def open(self, slot: int, state: NearestState, open_store: OpenStore) -> NearestUnit:  # type: ignore[override]
        """Open the unit ``slot``."""
        store = open_store(self.join.unit.plans)
        return NearestUnit(self.join, self.how, self.ranking, slot, state, store)
