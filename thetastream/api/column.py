"""``th.col`` names a column in a condition that is written in Python; ``th.from_nanos`` reads a time."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def col(name: str) -> Column:
    """Return a column as a Column of Spark, for a condition that is written in Python.

    It is ``pyspark.sql.functions.col``. A condition may be any Column that SQL can write too, with functions
    of ``pyspark.sql.functions``. On a classic session, Spark makes Columns only while a session is active.

    Parameters
    ----------
    name : str
        ``alias.column``; the alias may be left out if only one stream has the column.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join(
    ...     {"a": trades, "b": quotes}, on=th.col("a.price") < th.col("b.bid"), within="5m"
    ... )  # doctest: +SKIP
    """
    return F.col(name)


def from_nanos(nanos: Column | str) -> Column:
    """Return the TIMESTAMP of a number of nanoseconds since 1970-01-01T00:00:00Z.

    Spark has times of microseconds, so it is the last whole microsecond at or before the instant. Use it as
    event time, and keep the nanoseconds as BIGINT for conditions, as in ``a.nanos < b.nanos``.

    Parameters
    ----------
    nanos : Column or str
        A column of type BIGINT, or its name.

    Examples
    --------
    >>> import thetastream as th
    >>> ticks = rows.withColumn("ts", th.from_nanos("nanos")).withWatermark("ts", "5s")  # doctest: +SKIP
    """
    column = F.col(nanos) if isinstance(nanos, str) else nanos
    thousand = F.lit(1000)
    # ``div`` rounds towards zero. A division by ``/`` has only the 53 bits of a double.
    return F.timestamp_micros(F.call_function("div", column - F.pmod(column, thousand), thousand))
