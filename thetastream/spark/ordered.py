"""Orders results on Spark: one Spark task gathers and sorts what all units found in an epoch."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetastream.core.blocks import cut
from thetastream.core.columns import BLOCK
from thetastream.engine.order import Order, sort_results
from thetastream.engine.order.engine import ARRIVAL_LEFT, ARRIVAL_RIGHT
from thetastream.plan.physical import PhysicalPlan
from thetastream.spark.emit import MOST_BYTES, unpack_blocks

ARRIVAL = "arrival"
"""The column of ordered results that the user gets: struct<number: bigint, alias: string, stored: bigint>."""


def gather_in_order(results: DataFrame, columns: StructType, order: Order) -> DataFrame:
    """Sort the results of every epoch in one partition; ``results`` are rows, or blocks of rows."""
    places = columns.names.index(ARRIVAL_LEFT), columns.names.index(ARRIVAL_RIGHT)
    step = _make_gathering_step(order, places, results.columns == [BLOCK])
    return results.repartition(1).mapInArrow(step, columns)


def _make_gathering_step(
    order: Order, places: tuple[int, int], is_packed: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in sort_results(unpack_blocks(batches) if is_packed else batches, order, places):
            for batch in piece.to_batches():
                yield from cut(batch, MOST_BYTES)

    return step


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
