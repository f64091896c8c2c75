"""Builds a stream whose watermark follows other streams while it is idle, and reads its mark.

rows of the stream UNION control rows -> withWatermark -> rows of the stream
"""

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from thetastream.plan.domains import quote
from thetastream.spark.event_time import cast_event_time
from thetastream.spark.idle.source import TIME, read_idle_times

MARK = "thetastream.idle"
"""The metadata key of the event time of a stream with ``idle=``: the folder and the name of its reports."""
REPORTS = "idle-"
"""Beginning of the names of folders with reports."""
_CONTROL = "__is_control"


def follow_others(
    df: DataFrame, event_time: str, delay: str, delay_us: int, idle_s: float, folder: str
) -> DataFrame:
    """Mark the event time of a stream that may be idle. ``delay`` and ``delay_us`` are the same span."""
    df = cast_event_time(df, event_time)
    name = f"{REPORTS}{uuid.uuid4().hex}"
    times = read_idle_times(df.sparkSession, folder, name, idle_s, delay_us)
    control = [
        F.col(TIME).alias(field.name)
        if field.name == event_time
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in df.schema
    ]
    both = df.withColumn(_CONTROL, F.lit(False)).union(times.select(*control, F.lit(True)))
    time = F.col(quote(event_time))
    marked = {**(df.schema[event_time].metadata or {}), MARK: [folder, name]}
    columns = [
        time.alias(field.name, metadata=marked) if field.name == event_time else F.col(quote(field.name))
        for field in df.schema
    ]
    watched = both.select(*columns, _CONTROL).withWatermark(event_time, delay)
    # Spark moves a deterministic filter before the watermark, which would then see no control row. It moves
    # no filter past one that it takes for non-deterministic, so filters of the user stay behind it as well.
    rows = watched.where(~(F.col(_CONTROL) & (F.spark_partition_id() >= 0)))
    return rows.drop(_CONTROL)


def read_mark(field: StructField) -> tuple[str, str] | None:
    """Read folder and name from the mark of an event-time column; None if its stream has no ``idle=``."""
    found = (field.metadata or {}).get(MARK)
    return None if found is None else (found[0], found[1])
