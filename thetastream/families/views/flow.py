"""Joins whose units aggregate their matches into views."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from thetastream.aggregates import Measure
from thetastream.aggregates.operands import Calculation, Operand, SideColumn
from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.views import Fold, FoldedSpec
from thetastream.families.base import Planned
from thetastream.families.pairs.choose import choose_model
from thetastream.families.pairs.flow import describe_unit
from thetastream.families.pairs.plan import PairsPlan, TwoStreamPlan
from thetastream.families.views.folding import VIEW_TIME, Calculated, Computed, Folding, identify_folding
from thetastream.lowering.domains import quote
from thetastream.lowering.payload import exchange_payload, find_carrier
from thetastream.lowering.physical import PhysicalPlan
from thetastream.lowering.query import Stream
from thetastream.models.base import Model
from thetastream.runtime.flow import Flow, Output, UnitStage


class _Type(NamedTuple):
    """The Spark type of a column, and the type that blocks hold."""

    name: str
    in_blocks: str


_NO_TYPE = _Type("void", "boolean")
"""The type of a measure that reads no column."""


@dataclass(frozen=True, repr=False)
class FoldedPlan(TwoStreamPlan):
    """A join of two streams whose units aggregate their matches into views."""

    folding: Folding = field(kw_only=True)

    def flow(self, read: Collection[str] | None = None) -> Flow:
        flow = super().flow(read)
        return replace(flow, identity={**flow.identity, **identify_folding(self.folding, self.reading)})

    @property
    def stores_tuples_only(self) -> bool:
        return False

    def _describe_emitted(self) -> str:
        return "Spark merges the views of the units"

    def _describe_final_join(self) -> str:
        return "its matches are folded already"

    def list_stages(self, plan: PhysicalPlan) -> tuple[UnitStage, ...]:
        output, fold, condition = describe_views(plan, self.folding)
        make = partial(_build_folded_spec, describe_unit(replace(plan, condition=condition)), fold)
        return (self.make_stage(make, output),)


def fold_plan(plan: Planned, folding: Folding, inputs: tuple[Stream, Stream]) -> FoldedPlan:
    """Return the same join with views as its results: one row per unit, epoch and group.

    ``plan`` has a final join. ``inputs`` are the inputs of this join with other columns: those that its
    condition reads, and those that ``folding.computed`` names.
    """
    assert isinstance(plan, PairsPlan)
    # 1. Keep the condition. Drop the payload that only results needed, and add the computed columns.
    physical = exchange_payload(plan.physical, (inputs[0].carried, inputs[1].carried))
    query = replace(plan.query, streams=inputs, has_result_time=False)
    lowered = replace(plan.lowered, physical=physical)
    # 2. Choose the model again: tuples have another size, so another model may be cheaper.
    chosen = choose_model(plan.request, query, lowered)
    return FoldedPlan(plan.request, query, lowered, chosen, folding=folding)


def _build_folded_spec(unit: UnitSpec, fold: Fold, model: Model) -> EngineSpec:
    return FoldedSpec(TwoStreamSpec(unit, model), fold)


def describe_views(plan: PhysicalPlan, folding: Folding) -> tuple[Output, Fold, Condition]:
    """Describe the output of an aggregation: one row per unit, epoch and group.

    Columns have the names that ``folding`` gives them. Returns the output, the fold by which units aggregate
    their matches, and the condition with those columns as payload that the fold needs.

    The streams of the plan must have the columns that ``folding.computed`` names.
    """

    def at(column: Computed) -> tuple[SideColumn, _Type]:
        side = Side.LEFT if plan.sides[0].alias == column.alias else Side.RIGHT
        carried = next(c for c in plan.sides[side].carried if c.field == column.name)
        return SideColumn(side, carried.block_column), _Type(carried.type, carried.block_type)

    def operand(column: Computed | Calculated) -> tuple[Operand, _Type]:
        if isinstance(column, Computed):
            return at(column)
        operands = tuple(operand(read)[0] for read in column.operands)
        made = Calculation(column.operator, operands, column.type, column.is_checked)
        return made, _Type(column.type, find_carrier(column.type).block_type(column.type))

    fields: list[tuple[str, str, str | None]] = []
    """For each field: its name, its block type, and the Spark type to restore if the block type differs."""
    groups, measures = [], []
    for column in folding.groups:
        read, type_ = at(column)
        groups.append((read.side, read.name))
        fields.append((column.name, type_.in_blocks, type_.name))
    for measure in folding.measures:
        folded, type_ = (None, _NO_TYPE) if measure.column is None else operand(measure.column)
        measures.append(Measure(measure.function, folded))
        names, types = measure.function.columns(measure.name), measure.function.types(type_.name)
        for name, made in zip(names, types, strict=True):
            fields.append((name, type_.in_blocks, type_.name) if made is None else (name, made, None))
    keys = [side.time for side in plan.condition.sides]
    times = None
    if folding.pane is not None and keys[0] is not None and keys[1] is not None:
        times = (keys[0].column, keys[1].column)
        time = next(c for c in plan.sides[0].carried if c.block_column == times[0])
        fields.append((VIEW_TIME, time.block_type, time.type))
    where = None if folding.where is None else operand(folding.where)[0]
    lazy = folding.lazy
    if lazy is not None:
        left, right = (None if column is None else at(column)[0].name for column in folding.bounds)
        lazy = replace(lazy, bounds=(left, right))
    fold = Fold(
        tuple(groups), tuple(measures), times, folding.pane, lazy, where, has_deletes=folding.rows is not None
    )
    sides = tuple(
        replace(spec, columns=fold.columns(side))
        for side, spec in zip(Side, plan.condition.sides, strict=True)
    )
    output = Output(
        tuple(f"{quote(name)} {made}" for name, made, _ in fields),
        tuple(f"{_restore_column(name, type_)} AS {quote(name)}" for name, _, type_ in fields),
    )
    return output, fold, replace(plan.condition, sides=(sides[0], sides[1]))


def _restore_column(name: str, type_: str | None) -> str:
    column = quote(name)
    return column if type_ is None else find_carrier(type_).from_block(column, type_)
