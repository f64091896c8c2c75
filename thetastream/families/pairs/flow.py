"""Describes the units of a join of two streams: their specs, what leaves them, and how they may change."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from thetastream.core.columns import SIGN
from thetastream.engine.answers.spec import DecidingSpec
from thetastream.engine.order import ARRIVAL_LEFT, ARRIVAL_RIGHT, Order, PunctuatedSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec, BoundSources
from thetastream.families.pairs.choose import Choose
from thetastream.lowering.domains import quote, write_literal
from thetastream.lowering.identity import Reading, identify_model
from thetastream.lowering.lower import write_change_type
from thetastream.lowering.physical import PhysicalPlan, SidePlan
from thetastream.lowering.query import WATERMARK_BOUND
from thetastream.models.base import Model
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import (
    Choice,
    Fitted,
    Flow,
    Output,
    list_block_columns,
    restore_struct,
)


def build_pairs_spec(unit: UnitSpec, order: Order | None, model: Model) -> EngineSpec:
    """Build the spec of units that emit pairs, for a model that may be chosen."""
    join = TwoStreamSpec(unit, model)
    return PunctuatedSpec(join, order) if order is not None and order.is_punctuated else join


def build_bounding_spec(unit: UnitSpec, sources: BoundSources, model: Model) -> EngineSpec:
    """Build the spec of units that add a bound of the watermark to each pair."""
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


def describe_unit(plan: PhysicalPlan, is_ordered: bool = False) -> UnitSpec:
    """Describe the unit that stores and probes."""
    return UnitSpec(plan.condition, plan.indexes, plan.archive_period_us, plan.counts, is_ordered)


def open_choice(reading: Reading, choose: Choose | None, make: Callable[[Any], EngineSpec]) -> Choice | None:
    """Return what workers choose for other numbers of partitions; None if the user named the model."""
    if choose is None or reading.chosen_for is None:
        return None
    return Choice(reading.chosen_for, partial(_fit, choose, make))


def _fit(choose: Choose, make: Callable[[Any], EngineSpec], partitions: int) -> Fitted:
    model = choose(partitions)
    return Fitted(make(model), identify_model(model, Reading(chosen_for=partitions)))


def describe_pairs(sides: Sequence[SidePlan], residual: Sequence[str]) -> Output:
    """Describe the output of a join: one struct column per alias, and the type of the change."""
    columns = [column for side in sides for column in list_block_columns(side)]
    restored = [f"{restore_struct(side)} AS {quote(side.alias)}" for side in sides]
    if any(side.has_deletes for side in sides):
        columns.append(f"{SIGN} tinyint")
        restored.append(write_change_type())
    return Output(tuple(columns), tuple(restored), tuple(residual))


def describe_bounded_pairs(plan: PhysicalPlan) -> Output:
    """Describe the output of a join of a pipeline: pairs, and how far the watermark rises."""
    pairs, bound = describe_pairs(plan.sides, plan.residual), quote(WATERMARK_BOUND)
    return replace(pairs, columns=(*pairs.columns, f"{bound} bigint"), restored=(*pairs.restored, bound))


def describe_ordered_pairs(plan: PhysicalPlan) -> Output:
    """Describe the output of an ordered join: one struct column per alias, and the column ``arrival``."""
    columns = []
    for side, column in zip(plan.sides, (ARRIVAL_LEFT, ARRIVAL_RIGHT), strict=True):
        columns += [*list_block_columns(side), f"{column} bigint"]
    # A punctuation has no tuples, and residual filters must not remove it.
    structs = [
        f"CASE WHEN {_IS_PAIR} THEN {restore_struct(side)} END AS {quote(side.alias)}" for side in plan.sides
    ]
    residual = tuple(f"{ARRIVAL}.stored IS NULL OR ({text})" for text in plan.residual)
    return Output(tuple(columns), (*structs, write_arrival(plan)), residual)


ARRIVAL = "arrival"
"""The column of ordered results that the user gets."""
ARRIVAL_TYPE = "struct<number: bigint, alias: string, stored: bigint>"
"""The type of this column."""
_IS_PAIR = f"{ARRIVAL_LEFT} IS NOT NULL AND {ARRIVAL_RIGHT} IS NOT NULL"


def write_arrival(plan: PhysicalPlan) -> str:
    """Write the column ``arrival``.

    It has the number and the alias of the tuple that completed the pair, and the number of the stored tuple.
    A punctuation has the number and the alias of the tuple that it follows.
    """
    left, right = ARRIVAL_LEFT, ARRIVAL_RIGHT
    first, second = (write_literal(side.alias) for side in plan.sides)
    alias = f"CASE WHEN {right} IS NULL OR {left} > {right} THEN {first} ELSE {second} END"
    stored = f"CASE WHEN {_IS_PAIR} THEN least({left}, {right}) END"
    fields = f"greatest({left}, {right}) AS `number`, {alias} AS `alias`, {stored} AS `stored`"
    return f"struct({fields}) AS {ARRIVAL}"
