"""Remembers which DataFrames are tables that the user declared as ``th.Table``."""

from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from thetastream.spark.tables.table import Table

_DECLARED: "WeakKeyDictionary[DataFrame, Table]" = WeakKeyDictionary()


def declare(table: Table, spark: SparkSession) -> DataFrame:
    """Read a table of the user, and remember that the DataFrame is this table."""
    frame = table.read(spark)
    _DECLARED[frame] = table
    return frame


def find_declared(frame: DataFrame) -> Table | None:
    """Return the table whose rows a DataFrame has; None for any other DataFrame."""
    return _DECLARED.get(frame)
