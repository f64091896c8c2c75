"""The event time of a stream: marks it, finds where a plan uses it, and makes one for sources without it.

``mark_event_time`` marks a column, which may have no time zone, with a delay such as "5m". ``mark_checked``
also refuses a wrong delay.
``count_watermarks`` and ``list_dropping`` read the plan of a streaming DataFrame: calls of ``withWatermark``,
and operators that drop late rows. ``by_arrival`` makes an event time of the time of arrival.
"""

import io
import re
import sys
from contextlib import redirect_stdout
from threading import Lock, get_ident
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampNTZType

from thetastream.core.arguments import describe_given
from thetastream.core.columns import CHANGES
from thetastream.core.errors import QueryError
from thetastream.core.spans import Duration, read_delay, write_delay
from thetastream.spark.arguments import refuse_other_frames

_ANALYZED = re.compile(r"== Analyzed Logical Plan ==\n(.*?)\n== Optimized", re.DOTALL)
_NODE = re.compile(r"^[\s:|+\-~]*EventTimeWatermark\b", re.MULTILINE)
_DROPPING = {
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "Aggregate": "an aggregation",
}
"""What a user calls the operators of an analyzed plan that drop late rows."""
_OPERATOR = re.compile(r"^[\s:|+\-~]*(Deduplicate\w*|Aggregate)\b", re.MULTILINE)
_REDIRECTING = Lock()


def mark_event_time(df: DataFrame, column: str, delay: Duration) -> DataFrame:
    """Call ``withWatermark``, after a cast to TIMESTAMP if the column is TIMESTAMP_NTZ.

    Spark has watermarks only on TIMESTAMP. The cast reads the times in the time zone of the session.
    """
    return cast_event_time(df, column).withWatermark(column, write_delay(delay))


def mark_checked(df: DataFrame, column: str, delay: Duration, name: str) -> DataFrame:
    """Mark an event time that is known to be a time. ``name`` is what the user calls the delay.

    Raises
    ------
    QueryError
        INVALID_DURATION if the delay is no span of time that a watermark can have.
    """
    text = read_delay(delay, name)
    try:
        marked = cast_event_time(df, column).withWatermark(column, text)
        _ = marked.schema  # Spark Connect reads the delay only now.
    except PySparkException:
        # Such as INTERVAL '-1' DAY, which only Spark reads.
        what = f"{name} ({describe_given(delay)}) must be a span of time that is not negative"
        raise QueryError("INVALID_DURATION", f'{what}; write it as in "10 seconds"') from None
    return marked


def cast_event_time(df: DataFrame, column: str) -> DataFrame:
    """Cast the event time to TIMESTAMP if it is TIMESTAMP_NTZ."""
    if column in df.columns and isinstance(df.schema[column].dataType, TimestampNTZType):
        return df.withColumn(column, F.col(f"`{column}`").cast("timestamp"))
    return df


def count_watermarks(frame: DataFrame) -> int:
    """Count the watermarks in the plan of a streaming DataFrame.

    A union of two streams with watermarks has two, and so has the result of a join of such streams. Spark's
    watermark is the minimum over all of them, so one that stands still holds the others back.
    """
    return len(_NODE.findall(_print_plan(frame)))


def list_dropping(frame: DataFrame) -> list[str]:
    """List the operators in the plan of a streaming DataFrame that drop late rows, as users call them.

    Only operators behind a watermark drop late rows.
    """
    plan = _print_plan(frame)
    before, _, _ = plan.partition("EventTimeWatermark") if _NODE.search(plan) else ("", "", "")
    return sorted({_DROPPING[name] for name in _OPERATOR.findall(before) if name in _DROPPING})


def is_grouped(frame: DataFrame) -> bool:
    """Whether the plan of a DataFrame has groups."""
    return "Aggregate" in _OPERATOR.findall(_print_plan(frame))


def list_plan_lines(frame: DataFrame) -> list[str]:
    """List the operators of the analyzed plan of a DataFrame; those that run last come first."""
    # The first line has the columns.
    return [line.lstrip(" :|+-~") for line in _print_plan(frame).splitlines()[1:]]


def _print_plan(frame: DataFrame) -> str:
    """Print the analyzed plan. The operators that run last come first."""
    # ``explain`` is the only public view of a plan that classic sessions and Spark Connect have in common.
    with _REDIRECTING:
        printed = _OwnOutput(sys.stdout)
        with redirect_stdout(printed):
            frame.explain(True)
    found = _ANALYZED.search(printed.getvalue())
    return found[1] if found else ""


class _OwnOutput(io.StringIO):
    """Keeps what the thread prints that has made it. What other threads print goes where it went before."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self._before = before
        self._owner = get_ident()

    def write(self, text: str) -> int:
        if get_ident() != self._owner:
            return int(self._before.write(text))
        return super().write(text)


def list_marked(schema: StructType, mark: str) -> list[str]:
    """List the columns that have a mark in their metadata."""
    return [field.name for field in schema if mark in (field.metadata or {})]


def by_arrival(df: DataFrame, column: str = "arrival", slack: Duration = "10 seconds") -> DataFrame:
    """Add the time at which its epoch began to every tuple, and make this the event time of the stream.

    The time is Spark's ``current_timestamp()``: one instant for all tuples of an epoch. Spark writes it to
    the offset log before the epoch runs. An epoch that runs again after a failure gets the same instant, so
    the result stays exactly once.

    ``slack`` is the delay of the watermark. It covers steps of the clock, not delays of the network. The
    watermark never moves back, but a clock may be set back (by NTP, or because the driver restarts on another
    host). With a slack of zero, every tuple that comes after such a step would be late. A step of up to
    ``slack`` loses nothing. In return, the state lives longer by ``slack``.

    All rows of a batch DataFrame get one instant, so every pair is inside any time window.

    Raises
    ------
    QueryError
        STREAMS if ``df`` is no DataFrame.
        BAD_VALUE if ``column`` is no name; COLUMN_EXISTS; INVALID_DURATION if ``slack`` is no span of time
        or is negative; CHANGES_EVENT_TIME for a stream of ``th.changes``.
    """
    refuse_other_frames("th.by_arrival", df)
    if not isinstance(column, str) or not column or set(column) & set("`."):
        what = f"column must be a name without dots and backticks, not {column!r}"
        raise QueryError("BAD_VALUE", what)
    if list_marked(df.schema, CHANGES):
        what = "an insert and its delete arrive at different times, so they would be different rows"
        hint = 'take a column of the row as event time: .withWatermark("column", "delay")'
        raise QueryError("CHANGES_EVENT_TIME", f"{what}; {hint}")
    taken = {name.lower() for name in df.columns}
    if column.lower() in taken:
        raise QueryError(
            "COLUMN_EXISTS",
            f"column {column!r} is already in the stream ({', '.join(df.columns)}): "
            "its values would be lost; give by_arrival another column name",
        )
    return mark_checked(df.withColumn(column, F.current_timestamp()), column, slack, "slack")
