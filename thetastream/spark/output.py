"""The columns that leave the units, for pairs and for views, and how the user's columns are restored."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType, IntegerType, LongType, NullType, StructField, StructType

from thetastream.aggregate import Fold, Measure
from thetastream.aggregate.operands import Calculation, Operand, SideColumn
from thetastream.core.columns import DECIDED, PRESENT
from thetastream.core.condition import Condition
from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.order.engine import ARRIVAL_LEFT, ARRIVAL_RIGHT
from thetastream.plan.domains import quote
from thetastream.plan.folding import VIEW_TIME, Calculated, Computed, Folding
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.plan.query import WATERMARK_BOUND
from thetastream.plan.tasks import TASK, TasksPlan
from thetastream.spark.carriers import find_carrier
from thetastream.spark.ordered import ARRIVAL, build_arrival

CANDIDATE = "candidate row"
"""The struct column of a row between two units. The name is not an identifier, so no alias can have it."""


class Output(NamedTuple):
    """The columns that leave the units, and the columns that the user gets."""

    columns: StructType
    restored: list[Column]
    residual: tuple[Column, ...] = ()
    """Conjuncts that Spark evaluates on the results of the units."""

    def restore(self, results: DataFrame) -> DataFrame:
        """Restore the user's columns from the columns that leave the units, and filter by the residual."""
        restored = results.select(*self.restored)
        for conjunct in self.residual:
            restored = restored.where(conjunct)
        return restored


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


def describe_answers(spark: SparkSession, sides: Sequence[SidePlan], how: How) -> Output:
    """Describe the output of an outer, semi or anti join: one struct column per stream that is shown.

    The struct of a padded stream is NULL in rows without a tuple of this stream.
    """
    shown, flags = [sides[side] for side in how.shown], dict(zip(how.padded, PRESENT, strict=False))
    fields = [f"{c.block_column} {c.block_type}" for side in shown for c in side.carried]
    fields += [f"{flag} boolean" for flag in flags.values()]
    structs = []
    for side in how.shown:
        struct = restore_struct(sides[side])
        if side in flags:
            struct = F.when(F.col(flags[side]), struct)
        structs.append(struct.alias(sides[side].alias))
    return Output(parse_schema(spark, fields), structs)


def describe_candidates(spark: SparkSession, plan: PhysicalPlan, columns: CandidateColumns) -> Output:
    """Describe the rows that leave the first units of a join that answers each tuple.

    The results are one struct column with all columns of these rows. Behind it are the structs of the
    streams, over which Spark evaluates the residual of pairs.
    """
    fields = [f"{c.block_column} {c.block_type}" for side in plan.sides for c in side.carried]
    payload = parse_schema(spark, fields)
    more = [StructField(name, from_arrow_type(type_)) for name, type_ in columns.types.items()]
    row = F.struct("*").alias(CANDIDATE)
    decided = f"{quote(CANDIDATE)}.{DECIDED} IS NOT NULL"
    residual = tuple(F.expr(f"CASE WHEN {decided} THEN true ELSE ({text}\n) END") for text in plan.residual)
    structs = [restore_struct(side).alias(side.alias) for side in plan.sides]
    return Output(StructType([*payload, *more]), [row, *structs], residual)


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


def describe_tagged_pairs(spark: SparkSession, plan: TasksPlan) -> Output:
    """Describe the output of several joins: the column ``task``, and one struct column per alias."""
    first = describe_pairs(spark, plan.sides, ())
    names = F.array(*(F.lit(name) for name in plan.names))
    residual = tuple(
        F.when(F.col(TASK) == task.name, F.expr(conjunct)).otherwise(True)
        for task in plan.tasks
        for conjunct in task.plan.residual
    )
    columns = StructType([StructField(TASK, IntegerType()), *first.columns])
    return Output(columns, [F.get(names, F.col(TASK)).alias(TASK), *first.restored], residual)


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


def parse_schema(spark: SparkSession, fields: Sequence[str]) -> StructType:
    """Parse DDL fields into a schema."""
    return spark.createDataFrame([], ", ".join(fields)).schema if fields else StructType([])


def restore_struct(side: SidePlan) -> Column:
    """Restore the user's columns of a stream from its block columns, as one struct column."""
    return F.struct(*(F.expr(carried.from_block).alias(carried.field) for carried in side.carried))


def _find_block_type(type_: DataType) -> str:
    carrier = find_carrier(type_)
    assert carrier is not None  # The planner refuses columns that have no carrier.
    return carrier.block_type(type_)


def _restore_column(name: str, type_: DataType | None) -> Column:
    carrier = None if type_ is None else find_carrier(type_)
    if carrier is None or type_ is None:
        return F.col(quote(name))
    return F.expr(carrier.from_block(quote(name), type_))
