"""Turns plans into joins that ``thetastream.spark.dataflow.build`` can run, with one function per family of
joins.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from thetastream.core.condition import Condition
from thetastream.engine.answers.spec import DecidingSpec
from thetastream.engine.order import Order
from thetastream.engine.order.engine import ARRIVAL_LEFT, ARRIVAL_RIGHT, PunctuatedSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec, BoundSources
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import Reading, identify_model
from thetastream.lowering.physical import PhysicalPlan, SidePlan
from thetastream.lowering.query import WATERMARK_BOUND
from thetastream.models.base import Model
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Choice, Fitted, Flow, Output, UnitStage, parse_schema, restore_struct
from thetastream.spark.session.configure import count_partitions, is_case_sensitive

Choose = Callable[[int], Any]
"""A picklable function from a number of shuffle partitions to the model that the planner chooses for it."""


def _build_pairs_spec(unit: UnitSpec, order: Order | None, columns: Any, model: Model) -> EngineSpec:
    join = TwoStreamSpec(unit, model)
    return join if order is None or columns is None else PunctuatedSpec(join, order, columns)


def build_bounding_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    sources: BoundSources,
    choose: Choose | None = None,
) -> Flow:
    """Join two streams, with units that add a bound of the watermark to each result."""
    make = partial(_build_bounding_spec, _describe_unit(plan, plan.condition), sources)
    reading = _read_session(streams, choose)
    output = describe_bounded_pairs(streams[0].sparkSession, plan)
    stage = UnitStage(make(model), output, _open_choice(reading, choose, make))
    return Flow(plan.sides, plan.condition.sides, (stage,), identify_two_streams(plan, model, reading))


def _build_bounding_spec(unit: UnitSpec, sources: BoundSources, model: Model) -> EngineSpec:
    return BoundingSpec(TwoStreamSpec(unit, model), sources)


def let_units_change(flow: Flow, rules: Rules) -> Flow:
    """Return a join of two streams whose units may change while it runs.

    If the rules say so, stored tuples move to newer units when their unit leaves. Second units have as many
    slots as first units may have.
    """
    first, *later = flow.stages
    if rules.moves_tuples:
        first = first.with_change(_move)
    decide = partial(_add_slots, rules.max_units)
    return replace(flow, stages=(first, *(stage.with_change(decide) for stage in later)), rules=rules)


def _move(spec: EngineSpec) -> MovingSpec:
    assert isinstance(spec, TwoStreamSpec)
    return MovingSpec(spec)


def _add_slots(max_units: int, spec: EngineSpec) -> DecidingSpec:
    assert isinstance(spec, DecidingSpec)
    return replace(spec, max_units=max_units)


def _describe_unit(plan: PhysicalPlan, condition: Condition, is_ordered: bool = False) -> UnitSpec:
    return UnitSpec(condition, plan.indexes, plan.archive_period_us, plan.counts, is_ordered)


def _describe_units(plan: PhysicalPlan, model: Model) -> TwoStreamSpec:
    return TwoStreamSpec(_describe_unit(plan, plan.condition), model)


# A model that the planner has chosen


def _read_session(streams: Sequence[DataFrame], choose: Choose | None = None) -> Reading:
    spark = streams[0].sparkSession
    return Reading(is_case_sensitive(spark), None if choose is None else count_partitions(spark))


def _open_choice(reading: Reading, choose: Choose | None, make: Callable[[Any], EngineSpec]) -> Choice | None:
    if choose is None or reading.chosen_for is None:
        return None
    return Choice(reading.chosen_for, partial(_fit, choose, make))


def _fit(choose: Choose, make: Callable[[Any], EngineSpec], partitions: int) -> Fitted:
    model = choose(partitions)
    return Fitted(make(model), identify_model(model, Reading(chosen_for=partitions)))


def describe_pairs(spark: SparkSession, sides: Sequence[SidePlan], residual: Sequence[str]) -> Output:
    """Describe the output of a join: one struct column per alias."""
    fields = [f"{c.block_column} {c.block_type}" for side in sides for c in side.carried]
    structs = [restore_struct(side).alias(side.alias) for side in sides]
    return Output(parse_schema(spark, fields), structs, tuple(F.expr(text) for text in residual))


def describe_bounded_pairs(spark: SparkSession, plan: PhysicalPlan) -> Output:
    """Describe the output of a join of a pipeline: pairs, and how far the watermark rises."""
    pairs = describe_pairs(spark, plan.sides, plan.residual)
    columns = StructType([*pairs.columns, StructField(WATERMARK_BOUND, LongType())])
    return Output(columns, [*pairs.restored, F.col(quote(WATERMARK_BOUND))], pairs.residual)


def describe_ordered_pairs(spark: SparkSession, plan: PhysicalPlan) -> Output:
    """Describe the output of an ordered join: one struct column per alias, and the column ``arrival``."""
    fields = []
    for side, column in zip(plan.sides, (ARRIVAL_LEFT, ARRIVAL_RIGHT), strict=True):
        fields += [*(f"{c.block_column} {c.block_type}" for c in side.carried), f"{column} bigint"]
    # A punctuation has no tuples, and residual filters must not remove it.
    is_pair = F.col(ARRIVAL_LEFT).isNotNull() & F.col(ARRIVAL_RIGHT).isNotNull()
    structs = [F.when(is_pair, restore_struct(side)).alias(side.alias) for side in plan.sides]
    residual = tuple(F.expr(f"{ARRIVAL}.stored IS NULL OR ({text})") for text in plan.residual)
    return Output(parse_schema(spark, fields), [*structs, build_arrival(plan)], residual)


ARRIVAL = "arrival"
"""The column of ordered results that the user gets: struct<number: bigint, alias: string, stored: bigint>."""


def build_arrival(plan: PhysicalPlan) -> Column:
    """Build the column ``arrival``.

    It has the number and the alias of the tuple that completed the pair, and the number of the stored tuple.
    A punctuation has the number and the alias of the tuple that it follows.
    """
    left, right = F.col(ARRIVAL_LEFT), F.col(ARRIVAL_RIGHT)
    first, second = (F.lit(side.alias) for side in plan.sides)
    return F.struct(
        F.greatest(left, right).alias("number"),
        F.when(right.isNull() | (left > right), first).otherwise(second).alias("alias"),
        F.when(left.isNotNull() & right.isNotNull(), F.least(left, right)).alias("stored"),
    ).alias(ARRIVAL)
