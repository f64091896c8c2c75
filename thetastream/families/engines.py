"""For each engine that a model names, the function that joins two streams with it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from thetastream.engine.order import Order
from thetastream.families.answers import _build_answers
from thetastream.families.chain import build_handshake_join
from thetastream.families.pairs.flow import (
    Choose,
    _build_pairs_spec,
    _describe_unit,
    _open_choice,
    _read_session,
    describe_ordered_pairs,
    describe_pairs,
)
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.lowering.physical import PhysicalPlan
from thetastream.models.base import HANDSHAKE, UNITS, Model
from thetastream.runtime.flow import Flow, UnitStage


class JoinMaker(Protocol):
    """A function that joins two streams with one engine."""

    def __call__(
        self,
        plan: PhysicalPlan,
        model: Any,
        streams: Sequence[DataFrame],
        order: Order | None = None,
        choose: Choose | None = None,
    ) -> Flow: ...


def build_two_stream_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    order: Order | None = None,
    choose: Choose | None = None,
) -> Flow:
    """Join two streams under a model whose units send no messages.

    ``choose`` is given if the planner has chosen the model.
    """
    spark = streams[0].sparkSession
    unit = _describe_unit(plan, plan.condition, order is not None)
    reading = _read_session(streams, choose)
    if not plan.how.is_inner:
        return _build_answers(plan, unit, model, spark, reading, choose)
    output = (
        describe_pairs(spark, plan.sides, plan.residual)
        if order is None
        else describe_ordered_pairs(spark, plan)
    )
    columns = None
    if order is not None and order.is_punctuated:
        columns = to_arrow_schema(output.columns, timezone=spark.conf.get("spark.sql.session.timeZone"))
    make = partial(_build_pairs_spec, unit, order, columns)
    identity = identify_two_streams(plan, model, reading, order)
    stage = UnitStage(make(model), output, _open_choice(reading, choose, make), order)
    return Flow(plan.sides, plan.condition.sides, (stage,), identity)


ENGINES: Mapping[str, JoinMaker] = {UNITS: build_two_stream_join, HANDSHAKE: build_handshake_join}
"""For each name that ``Model.engine`` returns, the function that joins two streams with this engine."""
