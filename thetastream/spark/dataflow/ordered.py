"""Orders results on Spark: one Spark task gathers and sorts what all units found in an epoch."""

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thetastream.core.blocks import cut
from thetastream.core.columns import BLOCK
from thetastream.engine.order import Order, sort_results
from thetastream.engine.order.engine import ARRIVAL_LEFT, ARRIVAL_RIGHT
from thetastream.runtime.emit import MOST_BYTES, unpack_blocks


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
