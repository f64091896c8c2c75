"""What leaves the units: pairs, or views of them; and how Spark's columns are made of it again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, StructType

from thetastream.aggregate import Fold, Measure, columns_of
from thetastream.condition import Condition
from thetastream.order import Order
from thetastream.plan.domains import is_floating, quoted
from thetastream.plan.folding import TIME, Computed, Folding
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.spark.carriers import carrier_of
from thetastream.spark.ordered import ARRIVAL, LEFT, RIGHT, arrival
from thetastream.types import Side

_MADE = {"count": ("bigint",), "moments": ("bigint", "double", "double"), "distinct": ("binary",)}
"""Types of a measure's columns."""


class Output(NamedTuple):
    """The columns that leave the units, and the columns that the user gets."""

    condition: Condition
    """With the payload that results are made of."""
    fold: Fold | None
    columns: StructType
    restored: list[Column]
    residual: tuple[str, ...]
    """Filters behind the units."""

    @property
    def is_flat(self) -> bool:
        """Whether all columns may leave the stateful operator as pandas columns."""
        return is_flat(self.columns)


def is_flat(columns: StructType) -> bool:
    """Whether all columns may leave a stateful operator as pandas columns."""
    carriers = (carrier_of(field.dataType) for field in columns)
    return all(carrier is not None and carrier.is_flat for carrier in carriers)


def pairs(spark: SparkSession, plan: PhysicalPlan, order: Order | None) -> Output:
    """One struct column per alias, and ``arrival`` if they are ordered."""
    fields = [[f"{c.block_column} {c.block_type}" for c in side.carried] for side in plan.sides]
    structs, residual = [struct_of(side) for side in plan.sides], plan.residual
    if order is not None:
        for own, column in zip(fields, (LEFT, RIGHT), strict=True):
            own.append(f"{column} bigint")
        # A punctuation has no tuples, and no condition takes it away.
        structs = [F.when(F.col(RIGHT).isNotNull(), struct) for struct in structs]
        residual = tuple(f"{ARRIVAL}.alias IS NULL OR ({text})" for text in residual)
    restored = [struct.alias(side.alias) for struct, side in zip(structs, plan.sides, strict=True)]
    if order is not None:
        restored.append(arrival(plan))
    return Output(plan.condition, None, schema_of(spark, [*fields[0], *fields[1]]), restored, residual)


def views(streams: Sequence[DataFrame], plan: PhysicalPlan, folding: Folding) -> Output:
    """One row per unit, epoch and group; columns are named as in ``folding``.

    ``streams`` have the columns that ``folding.computed`` names.
    """

    def at(column: Computed) -> tuple[Side, str, DataType]:
        side = Side.LEFT if plan.sides[0].alias == column.alias else Side.RIGHT
        carried = next(c for c in plan.sides[side].carried if c.field == column.name)
        return side, carried.block_column, streams[side].schema[column.name].dataType

    fields: list[tuple[str, str, DataType | None]] = []
    """(name, block type, type to restore if it travels as another)"""
    groups, measures = [], []
    for column in folding.groups:
        side, block, type_ = at(column)
        groups.append((side, block))
        fields.append((column.name, _block_type(type_), type_))
    for measure in folding.measures:
        if measure.column is None:
            measures.append(Measure("count"))
            fields.append((measure.name, "bigint", None))
            continue
        side, block, type_ = at(measure.column)
        measures.append(Measure(measure.function, side, block, measure.registers))
        names = columns_of(measure.name, measure.function)
        if measure.function in ("min", "max"):
            fields.append((measure.name, _block_type(type_), type_))
        else:
            made = _MADE.get(measure.function) or (_sum_type(type_),)
            fields += [(name, kind, None) for name, kind in zip(names, made, strict=True)]
    keys = [side.time for side in plan.condition.sides]
    times = None
    if folding.pane is not None and keys[0] is not None and keys[1] is not None:
        times = (keys[0].column, keys[1].column)
        time = next(c for c in plan.sides[0].carried if c.block_column == times[0])
        type_ = streams[0].schema[time.field].dataType
        fields.append((TIME, time.block_type, type_))
    fold = Fold(tuple(groups), tuple(measures), times, folding.pane, folding.lazy)
    sides = tuple(
        replace(spec, columns=fold.columns(side))
        for side, spec in zip(Side, plan.condition.sides, strict=True)
    )
    return Output(
        replace(plan.condition, sides=(sides[0], sides[1])),
        fold,
        schema_of(streams[0].sparkSession, [f"{quoted(name)} {made}" for name, made, _ in fields]),
        [_restored(name, type_).alias(name) for name, _, type_ in fields],
        (),
    )


def schema_of(spark: SparkSession, fields: Sequence[str]) -> StructType:
    """The columns of these DDL fields."""
    return spark.createDataFrame([], ", ".join(fields)).schema if fields else StructType([])


def struct_of(side: SidePlan) -> Column:
    """A stream's columns as the user had them, of its block columns."""
    return F.struct(*(F.expr(carried.from_block).alias(carried.field) for carried in side.carried))


def _block_type(type_: DataType) -> str:
    carrier = carrier_of(type_)
    assert carrier is not None  # the plan carries it
    return carrier.block_type(type_)


def _restored(name: str, type_: DataType | None) -> Column:
    carrier = None if type_ is None else carrier_of(type_)
    if carrier is None or type_ is None:
        return F.col(quoted(name))
    return F.expr(carrier.from_block(quoted(name), type_))


def _sum_type(type_: DataType) -> str:
    """What a view adds up in: decimals of 38 digits, or double."""
    if is_floating(type_.simpleString()):
        return "double"
    return f"decimal(38,{type_.scale if isinstance(type_, DecimalType) else 0})"
