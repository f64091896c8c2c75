"""Marks the event time of a stream, which may have no time zone, with a delay such as "5m"."""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from thetastream.core.durations import parse_duration
from thetastream.core.windows import Duration, to_micros

MARK = "spark.watermarkDelayMs"
"""The metadata key by which Spark marks the column that ``withWatermark`` names, with the delay."""


def mark_event_time(df: DataFrame, column: str, delay: Duration) -> DataFrame:
    """Call ``withWatermark``, after a cast to TIMESTAMP if the column is TIMESTAMP_NTZ.

    Spark has watermarks only on TIMESTAMP. The cast reads the times in the time zone of the session.
    """
    return cast_event_time(df, column).withWatermark(column, write_delay(delay))


def cast_event_time(df: DataFrame, column: str) -> DataFrame:
    """Cast the event time to TIMESTAMP if it is TIMESTAMP_NTZ."""
    if column in df.columns and isinstance(df.schema[column].dataType, TimestampNTZType):
        return df.withColumn(column, F.col(f"`{column}`").cast("timestamp"))
    return df


def write_delay(delay: Duration) -> str:
    """Write a delay in the form that Spark reads.

    >>> write_delay("5m"), write_delay(timedelta(seconds=1.5)), write_delay("1 month")
    ('300000000 microseconds', '1500000 microseconds', '1 month')
    """
    span = delay if isinstance(delay, timedelta) else parse_duration(delay)
    return str(delay) if span is None else f"{to_micros(span)} microseconds"
