"""For each engine that a model names, the function that joins two streams with it."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from thetastream.engine.order import Order
from thetastream.families.answers import _build_answers
from thetastream.families.chain import build_handshake_join
from thetastream.families.pairs.flow import (
    Choose,
    _build_pairs_spec,
    _describe_unit,
    _open_choice,
    describe_ordered_pairs,
    describe_pairs,
)
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.lowering.identity import Reading
from thetastream.lowering.physical import PhysicalPlan
from thetastream.models.base import HANDSHAKE, UNITS, Model
from thetastream.runtime.flow import Flow, UnitStage


class JoinMaker(Protocol):
    """A function that joins two streams with one engine."""

    def __call__(
        self,
        plan: PhysicalPlan,
        model: Any,
        reading: Reading,
        order: Order | None = None,
        choose: Choose | None = None,
    ) -> Flow: ...


def build_two_stream_join(
    plan: PhysicalPlan,
    model: Model,
    reading: Reading,
    order: Order | None = None,
    choose: Choose | None = None,
) -> Flow:
    """Join two streams under a model whose units send no messages.

    ``choose`` is given if the planner has chosen the model.
    """
    unit = _describe_unit(plan, plan.condition, order is not None)
    if not plan.how.is_inner:
        return _build_answers(plan, unit, model, reading, choose)
    output = describe_pairs(plan.sides, plan.residual) if order is None else describe_ordered_pairs(plan)
    make = partial(_build_pairs_spec, unit, order)
    identity = identify_two_streams(plan, model, reading, order)
    stage = UnitStage(make(model), output, _open_choice(reading, choose, make), order)
    return Flow(plan.sides, plan.condition.sides, (stage,), identity)


ENGINES: Mapping[str, JoinMaker] = {UNITS: build_two_stream_join, HANDSHAKE: build_handshake_join}
"""For each name that ``Model.engine`` returns, the function that joins two streams with this engine."""
