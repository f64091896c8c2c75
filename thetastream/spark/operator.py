"""Runs units in Spark's stateful operator: rows grouped by unit go in, results and counters come out."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from thetastream.core.columns import BLOCK, UNIT
from thetastream.spark.emit import COUNTERS, BlockEmitter, Emitter, FlatEmitter
from thetastream.spark.epoch import UnitEpoch
from thetastream.spark.processor import JoinProcessor


def add_counters(columns: StructType) -> StructType:
    """Append a column of counters to the columns of results."""
    return StructType([*columns, StructField(COUNTERS, StringType())])


def run_units(
    rows: DataFrame,
    columns: StructType,
    is_flat: bool,
    has_watermark: bool,
    epoch_of: Callable[[Emitter], UnitEpoch],
) -> DataFrame:
    """Run the units on their rows; return ``columns`` and counters, packed in blocks unless they are flat.

    Parameters
    ----------
    rows : DataFrame
        The rows of the exchange.
    columns : StructType
        The columns of results.
    is_flat : bool
        Whether results leave as pandas columns and not as packed blocks.
    has_watermark : bool
        Whether units use Spark's watermark.
    epoch_of : callable
        Makes the ``UnitEpoch`` that is sent to the workers, for a given emitter.
    """
    schema = add_counters(columns)
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    arrow = to_arrow_schema(schema, timezone=zone)
    epoch = epoch_of(FlatEmitter(arrow) if is_flat else BlockEmitter(arrow))
    return rows.groupBy(UNIT).transformWithStateInPandas(
        JoinProcessor(epoch),
        schema if is_flat else StructType([StructField(BLOCK, BinaryType())]),
        "Append",
        "EventTime" if has_watermark else "None",
    )
