"""Runs units in Spark's stateful operator: rows grouped by unit go in, results and counters come out."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from thetastream.core.columns import BLOCK, UNIT
from thetastream.spark.emit import COUNTERS, Emitter
from thetastream.spark.epoch import UnitEpoch
from thetastream.spark.processor import JoinProcessor


def add_counters(columns: StructType) -> StructType:
    """Append a column of counters to the columns of results."""
    return StructType([*columns, StructField(COUNTERS, StringType())])


def run_units(
    rows: DataFrame,
    columns: StructType,
    emitter_of: Callable[[pa.Schema], Emitter],
    has_watermark: bool,
    epoch_of: Callable[[Emitter], UnitEpoch],
) -> DataFrame:
    """Run the units on their rows; return ``columns`` and counters, packed in blocks if the emitter does so.

    Parameters
    ----------
    rows : DataFrame
        The rows of the exchange.
    columns : StructType
        The columns of results.
    emitter_of : callable
        Makes the emitter of results for a schema of columns and counters.
    has_watermark : bool
        Whether units use Spark's watermark.
    epoch_of : callable
        Makes the ``UnitEpoch`` that is sent to the workers, for a given emitter.
    """
    schema = add_counters(columns)
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    arrow = to_arrow_schema(schema, timezone=zone)
    emitter = emitter_of(arrow)
    return rows.groupBy(UNIT).transformWithStateInPandas(
        JoinProcessor(epoch_of(emitter)),
        StructType([StructField(BLOCK, BinaryType())]) if emitter.is_packing else schema,
        "Append",
        "EventTime" if has_watermark else "None",
    )
