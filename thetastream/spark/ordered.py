"""Ordered results on Spark: one task gathers what the units found in an epoch."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetastream.keys import Int64s
from thetastream.order import Order, gather
from thetastream.plan.physical import PhysicalPlan
from thetastream.spark.emit import BLOCK, unpack_blocks

ARRIVAL = "arrival"
"""The user's column: struct<number: bigint, alias: string, stored: bigint>."""
LEFT, RIGHT = "arrival_left", "arrival_right"
"""Columns that leave the units: where each tuple of a pair stands in the order of arrival."""


def gathered(results: DataFrame, columns: StructType, order: Order) -> DataFrame:
    """The rows of every epoch in order, in one partition; ``results`` are rows, or blocks of them."""
    places = columns.names.index(LEFT), columns.names.index(RIGHT)
    step = _gathering(order, places, results.columns == [BLOCK])
    return results.repartition(1).mapInArrow(step, columns)


def _gathering(
    order: Order, places: tuple[int, int], is_packed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in gather(unpack_blocks(batches) if is_packed else batches, order, places):
            yield from piece.to_batches()

    return step


def arrival(plan: PhysicalPlan) -> Column:
    """Number and alias of the tuple whose arrival made a pair, number of the stored one."""
    left, right = F.col(LEFT), F.col(RIGHT)
    first, second = (F.lit(side.alias) for side in plan.sides)
    return F.struct(
        F.greatest(left, right).alias("number"),
        F.when(right.isNotNull(), F.when(left > right, first).otherwise(second)).alias("alias"),
        F.when(right.isNotNull(), F.least(left, right)).alias("stored"),
    ).alias(ARRIVAL)


def punctuations(numbers: Int64s, schema: pa.Schema) -> list[pa.Array]:
    """Punctuations as columns of results: NULL but for the arrival after which they stand."""
    return [
        pa.array(numbers) if field.name == LEFT else pa.nulls(len(numbers), field.type) for field in schema
    ]
