"""``th.col`` names a column in a condition that is written in Python."""

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
