"""Builds joins whose units aggregate their matches into views."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, NullType

from thetastream.aggregates import Measure
from thetastream.aggregates.operands import Calculation, Operand, SideColumn
from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.views.engine import FoldedSpec
from thetastream.engine.views.view import Fold
from thetastream.families.pairs.flow import Choose, _describe_unit, _open_choice, _read_session
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.families.views.folding import VIEW_TIME, Calculated, Computed, Folding
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import PhysicalPlan
from thetastream.models.base import Model
from thetastream.runtime.flow import Flow, Output, UnitStage, _find_block_type, _restore_column, parse_schema


def build_folded_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    folding: Folding,
    choose: Choose | None = None,
) -> Flow:
    """Join two streams, with units that aggregate their matches into views."""
    output, fold, condition = describe_views(streams, plan, folding)
    make = partial(_build_folded_spec, _describe_unit(plan, condition), fold)
    reading = _read_session(streams, choose)
    identity = identify_two_streams(plan, model, reading, None, folding)
    stage = UnitStage(make(model), output, _open_choice(reading, choose, make))
    return Flow(plan.sides, plan.condition.sides, (stage,), identity)


def _build_folded_spec(unit: UnitSpec, fold: Fold, model: Model) -> EngineSpec:
    return FoldedSpec(TwoStreamSpec(unit, model), fold)


def describe_views(
    streams: Sequence[DataFrame], plan: PhysicalPlan, folding: Folding
) -> tuple[Output, Fold, Condition]:
    """Describe the output of an aggregation: one row per unit, epoch and group.

    Columns have the names that ``folding`` gives them. Returns the output, the fold by which units aggregate
    their matches, and the condition with those columns as payload that the fold needs.

    ``streams`` must have the columns that ``folding.computed`` names.
    """

    def at(column: Computed) -> tuple[SideColumn, DataType]:
        side = Side.LEFT if plan.sides[0].alias == column.alias else Side.RIGHT
        carried = next(c for c in plan.sides[side].carried if c.field == column.name)
        return SideColumn(side, carried.block_column), streams[side].schema[column.name].dataType

    def operand(column: Computed | Calculated) -> tuple[Operand, DataType]:
        if isinstance(column, Computed):
            return at(column)
        operands = tuple(operand(read)[0] for read in column.operands)
        made = Calculation(column.operator, operands, column.type, column.is_checked)
        return made, parse_schema(streams[0].sparkSession, [f"x {column.type}"])[0].dataType

    fields: list[tuple[str, str, DataType | None]] = []
    """For each field: its name, its block type, and the Spark type to restore if the block type differs."""
    groups, measures = [], []
    for column in folding.groups:
        read, type_ = at(column)
        groups.append((read.side, read.name))
        fields.append((column.name, _find_block_type(type_), type_))
    for measure in folding.measures:
        folded, type_ = (None, NullType()) if measure.column is None else operand(measure.column)
        measures.append(Measure(measure.function, folded))
        names, types = measure.function.columns(measure.name), measure.function.types(type_.simpleString())
        for name, made in zip(names, types, strict=True):
            fields.append((name, _find_block_type(type_), type_) if made is None else (name, made, None))
    keys = [side.time for side in plan.condition.sides]
    times = None
    if folding.pane is not None and keys[0] is not None and keys[1] is not None:
        times = (keys[0].column, keys[1].column)
        time = next(c for c in plan.sides[0].carried if c.block_column == times[0])
        type_ = streams[0].schema[time.field].dataType
        fields.append((VIEW_TIME, time.block_type, type_))
    where = None if folding.where is None else operand(folding.where)[0]
    lazy = folding.lazy
    if lazy is not None:
        left, right = (None if column is None else at(column)[0].name for column in folding.bounds)
        lazy = replace(lazy, bounds=(left, right))
    fold = Fold(tuple(groups), tuple(measures), times, folding.pane, lazy, where)
    sides = tuple(
        replace(spec, columns=fold.columns(side))
        for side, spec in zip(Side, plan.condition.sides, strict=True)
    )
    output = Output(
        parse_schema(streams[0].sparkSession, [f"{quote(name)} {made}" for name, made, _ in fields]),
        [_restore_column(name, type_).alias(name) for name, _, type_ in fields],
    )
    return output, fold, replace(plan.condition, sides=(sides[0], sides[1]))
