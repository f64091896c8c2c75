"""Marks the event time of a stream, which may be idle: ``th.with_watermark``."""

from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql.types import IntegralType, TimestampNTZType, TimestampType

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.columns import MARK
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.spans import Duration, read_span, write_delay
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.spark.arguments import refuse_other_frames
from thetastream.spark.event_time import mark_checked
from thetastream.spark.sources.idle import follow_others


def with_watermark(
    df: DataFrame, event_time: str, delay: Duration = "0 seconds", idle: Duration | None = None
) -> DataFrame:
    """Mark the event time of a stream, as Spark's ``withWatermark`` does, also for a stream that may be idle.

    Spark's watermark is the smallest one of all streams of a query. A stream that brings nothing stops the
    watermark, and then no state expires. With ``idle="5 minutes"``, a stream that brings nothing for five
    minutes, while other streams of its join bring tuples, no longer stops it: its watermark follows the other
    streams until its next tuple arrives. Tuples that it brings behind the watermark are late.

    Parameters
    ----------
    df : DataFrame
        A stream without a watermark. A batch DataFrame is returned as Spark returns it.
    event_time : str
        The column with the event time. TIMESTAMP_NTZ is cast to TIMESTAMP in the time zone of the session.
    delay : str or timedelta
        How far behind the latest event time a tuple may come. ``"10s"`` and ``"10 seconds"`` are the same.
    idle : str or timedelta, optional
        How long the stream may be silent, by the clock of the driver. Only the time in which other streams
        bring tuples counts. In a run with ``trigger(availableNow=True)``, no stream is idle. By default, a
        silent stream stops the watermark for ever. Units report what they receive in the folder
        ``spark.thetastream.mailbox``.

    Returns
    -------
    DataFrame
        The stream with its columns. Give it to ``th.join``, ``th.join_many``, ``th.aggregate`` or ``th.sql``.
        You may select columns and filter rows before.

    Raises
    ------
    QueryError
        STREAMS if ``df`` is no DataFrame. UNKNOWN_COLUMN, EVENT_TIME_TYPE, INVALID_DURATION, or MAILBOX if
        the folder is not one that driver and workers share.

    Examples
    --------
    >>> import thetastream as th
    >>> quotes = th.with_watermark(raw, "ts", "10 seconds", idle="5 minutes")  # doctest: +SKIP
    """
    refuse_other_frames("th.with_watermark", df)
    idle_s = None if idle is None else _read_idle(idle)
    if event_time not in df.columns:
        what = f"event_time names {event_time!r}, but the stream has the columns {', '.join(df.columns)}"
        raise QueryError("UNKNOWN_COLUMN", what)
    refuse_other_type(df, event_time)
    marked = mark_checked(df, event_time, delay, "delay")
    if idle_s is None or not df.isStreaming:
        return marked
    spark = df.sparkSession
    asked = spark.conf.get("spark.thetastream.mailbox", None)
    folder, problems = SparkSessionChecks(spark).choose_mailbox_folder(asked)
    raise_problems(problems)
    delay_us = int(marked.schema[event_time].metadata[MARK]) * 1000
    return follow_others(df, event_time, write_delay(delay), delay_us, idle_s, folder)


def refuse_other_type(df: DataFrame, event_time: str) -> None:
    """Raise if a column is no time, and say how to make one of it.

    Raises
    ------
    QueryError
        EVENT_TIME_TYPE.
    """
    type_ = df.schema[event_time].dataType
    if isinstance(type_, TimestampType | TimestampNTZType):
        return
    name = f'"{event_time}"'
    if isinstance(type_, IntegralType):
        made = f"F.timestamp_seconds({name}), or F.timestamp_millis({name}) if it counts milliseconds"
    else:
        made = f'F.col({name}).cast("timestamp")'
    what = f"the event time {event_time!r} must be a TIMESTAMP, not {type_.simpleString().upper()}"
    raise QueryError("EVENT_TIME_TYPE", f"{what}; compute one: df.withColumn({name}, {made})")


def _read_idle(idle: Duration) -> float:
    """Read how long a stream may be silent, in seconds."""
    span = read_span(idle)
    if span is None or span <= timedelta(0):
        what = f"idle must be a span of time above zero, not {describe_given(idle)}"
        raise QueryError("INVALID_DURATION", what + (hint_unit(idle) or '; write it as in "5 minutes"'))
    return span.total_seconds()
