"""Checks that the first argument of a public function is a DataFrame or a session of Spark.

A session and a DataFrame of Spark Connect are other classes than those of a classic session, so their members
are asked for and not their classes.
"""

from typing import Any

from thetastream.core.arguments import describe_given
from thetastream.core.errors import QueryError, SessionError


def is_frame(value: Any) -> bool:
    """Whether a value is a DataFrame of Spark."""
    # A Column of Spark Connect has every attribute, and its class has not.
    return hasattr(type(value), "isStreaming") and hasattr(value, "sparkSession")


def is_pandas_frame(value: Any) -> bool:
    """Whether a value is a frame of pandas-on-Spark."""
    # An unknown attribute of such a frame is an AssertionError, so it is asked for nothing.
    return type(value).__module__.startswith("pyspark.pandas.")


def refuse_other_frames(function: str, df: Any) -> None:
    """Raise STREAMS unless ``df`` is a DataFrame of Spark. ``function`` is who asks, as in ``th.changes``."""
    if is_pandas_frame(df):
        what = "a frame of pandas-on-Spark; give its to_spark()"
        raise QueryError("STREAMS", f"{function} takes a DataFrame of Spark, and not {what}")
    if not is_frame(df):
        raise QueryError("STREAMS", f"{function} takes a DataFrame of Spark, not {describe_given(df)}")


def refuse_other_sessions(function: str, spark: Any) -> None:
    """Raise NO_SESSION unless ``spark`` is a Spark session. ``function`` is who asks, as in ``th.sql``."""
    if not hasattr(type(spark), "createDataFrame") or not hasattr(spark, "conf"):
        what = f"{function} takes a Spark session first, as th.local_session() returns one"
        raise SessionError("NO_SESSION", f"{what}, not {describe_given(spark)}")
