"""Units as Spark's stateful operator: rows grouped by unit in, columns of results and counters out."""

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from thetastream.spark.emit import BLOCK, COUNTERS, BlockEmitter, Emitter, FlatEmitter
from thetastream.spark.processor import JoinProcessor


def with_counters(columns: StructType) -> StructType:
    """Columns of results, and a column of counters behind them."""
    return StructType([*columns, StructField(COUNTERS, StringType())])


def stateful(
    rows: DataFrame,
    columns: StructType,
    is_flat: bool,
    has_watermark: bool,
    spec_of: Callable[[Emitter], Any],
) -> DataFrame:
    """What units make of their rows: ``columns`` and counters, packed in blocks unless they are flat.

    Parameters
    ----------
    rows : DataFrame
        With a column ``unit``.
    columns : StructType
        Of results.
    is_flat : bool
        Whether they leave as they are.
    has_watermark : bool
        Whether units are told Spark's.
    spec_of : callable
        Emitter -> what travels to the workers, as ``EpochSpec``.
    """
    schema = with_counters(columns)
    zone = rows.sparkSession.conf.get("spark.sql.session.timeZone")
    arrow = to_arrow_schema(schema, timezone=zone)
    spec = spec_of(FlatEmitter(arrow) if is_flat else BlockEmitter(arrow))
    return rows.groupBy("unit").transformWithStateInPandas(
        JoinProcessor(spec),
        schema if is_flat else StructType([StructField(BLOCK, BinaryType())]),
        "Append",
        "EventTime" if has_watermark else "None",
    )
