"""The specs of outer, semi, anti and nearest joins."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import pyarrow as pa

from thetastream.core.columns import SENDER
from thetastream.core.how import How, PairRanking
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns, CandidatesUnit
from thetastream.engine.answers.deciding import DecidingState, DecidingUnit
from thetastream.engine.answers.early import EarlyUnit
from thetastream.engine.answers.nearest import NearestState, NearestUnit, VersionsState
from thetastream.engine.answers.unit import AnsweringUnit, AnswersState
from thetastream.engine.protocol import OpenStore
from thetastream.engine.routing import Router
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.models.base import Model, Places
from thetastream.models.matrix import Matrix


@dataclass(frozen=True)
class AnswersSpec(ExtendedSpec):
    """A join of two streams that answers each tuple of its preserved streams.

    The model must show every preserved tuple all its partners at one unit (``Model.sees_partners``).
    """

    how: How

    state_type: ClassVar[type[Any]] = AnswersState

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs; None if they can."""
        unit = self.join.unit
        for side in Side:
            if unit.describe_stored(side).lifetime_us is None:
                alias = unit.condition.sides[side].alias
                return (
                    f"new units of how={self.how.name!r} take over when older tuples have expired, and those "
                    f'of {alias!r} never expire; set within="...", or bound the event times in the condition'
                )
        return super().scaling_obstacle

    @property
    def partner_streams(self) -> tuple[int, ...]:
        """The streams in which tuples look for partners that they must all meet at one unit."""
        return self.how.partners

    def open(self, slot: int, state: AnswersState, open_store: OpenStore) -> AnsweringUnit:
        """Open the unit ``slot``."""
        return AnsweringUnit(self.join, self.how, slot, state, open_store(self.join.unit.plans))


@dataclass(frozen=True)
class EarlySpec(AnswersSpec):
    """An outer join that answers rows without partners at once. Both streams have signs."""

    def open(self, slot: int, state: AnswersState, open_store: OpenStore) -> EarlyUnit:
        """Open the unit ``slot``."""
        return EarlyUnit(self.join, self.how, slot, state, open_store(self.join.unit.plans))


@dataclass(frozen=True)
class NearestSpec(AnswersSpec):
    """A join of two streams that finds the nearest partners of each left tuple."""

    ranking: PairRanking

    state_type: ClassVar[type[Any]] = NearestState
    drops_replaced: ClassVar[bool] = False
    """Whether later right tuples with equal keys replace one, once the watermark has passed them."""

    def open(self, slot: int, state: NearestState, open_store: OpenStore) -> NearestUnit:  # type: ignore[override]
        """Open the unit ``slot``."""
        store = open_store(self.join.unit.plans)
        return NearestUnit(self.join, self.how, self.ranking, slot, state, store, self.drops_replaced)


@dataclass(frozen=True)
class VersionsSpec(NearestSpec):
    """A join that finds the nearest versions of each left tuple, and drops those that later ones replace."""

    state_type: ClassVar[type[Any]] = VersionsState
    drops_replaced: ClassVar[bool] = True


@dataclass(frozen=True)
class CandidatesSpec(AnswersSpec):
    """The first units of a join, if Spark evaluates a part of the condition behind them."""

    ranking: PairRanking | None = None

    @property
    def columns(self) -> CandidateColumns:
        """The columns of the rows between the first and the second units."""
        left, right = self.join.unit.condition.sides
        signed = (left.has_deletes, right.has_deletes)
        return CandidateColumns(self.how, (left.columns, right.columns), self.ranking, signed)

    def open(self, slot: int, state: AnswersState, open_store: OpenStore) -> CandidatesUnit:
        """Open the first unit ``slot``."""
        return CandidatesUnit(self.join, self.columns, slot, state, open_store(self.join.unit.plans))


@dataclass(frozen=True)
class DecidingSpec:
    """The second units of a join: each gets the rows of the first unit on the same slot."""

    candidates: CandidatesSpec
    max_units: int = 0
    """The number of slots of first units, if these may change while the query runs."""

    state_type: ClassVar[type[Any]] = DecidingState
    has_messages: ClassVar[bool] = False
    has_event_time: ClassVar[bool] = False
    """The first units decide by the watermark, and the second units follow them."""
    partner_streams: ClassVar[tuple[int, ...]] = ()

    @property
    def n_units(self) -> int:
        """The number of units: one for each slot of a first unit."""
        return max(self.candidates.n_units, self.max_units)

    @cached_property
    def router(self) -> Router:
        """The router that sends the rows of a first unit to the second unit of the same slot."""
        n = self.n_units
        return Router(Matrix(n, 1, (n, 1)), _find_sender)

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs; None if they can."""
        return self.candidates.scaling_obstacle

    def with_model(self, model: Model) -> Self:
        """Return the same query under another model."""
        return replace(self, candidates=self.candidates.with_model(model))

    def open(self, slot: int, state: DecidingState, open_store: OpenStore) -> DecidingUnit:
        """Open the second unit ``slot``."""
        return DecidingUnit(self.candidates.columns, state, open_store({}))


def _find_sender(side: Side, rows: pa.RecordBatch) -> Places:
    sender: Int64s = rows.column(SENDER).to_numpy().astype("int64")
    return Places(sender, sender, sender)
