"""Turns the SQL texts of an output into columns of Spark."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thetastream.runtime.flow import Output


def parse_columns(spark: SparkSession, columns: Sequence[str]) -> StructType:
    """Parse columns, which are written as DDL, into a schema."""
    return spark.createDataFrame([], ", ".join(columns)).schema if columns else StructType([])


def restore(results: DataFrame, output: Output) -> DataFrame:
    """Restore the user's columns from the columns that leave the units, and filter by the residual."""
    restored = results.select(*map(F.expr, output.restored))
    for conjunct in output.residual:
        restored = restored.where(F.expr(conjunct))
    return restored
