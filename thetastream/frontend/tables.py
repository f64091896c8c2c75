"""Turns tables of pandas and Arrow into batch DataFrames, so that a join takes them as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from thetastream.errors import SessionError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    Table: TypeAlias = DataFrame | pd.DataFrame | pa.Table
    """An input of a join: a streaming or batch DataFrame, or a table of pandas or Arrow."""


def read_tables(streams: Any, spark: SparkSession | None = None) -> Any:
    """Return the streams of a join with a batch DataFrame in place of each table of pandas or Arrow.

    ``spark`` reads the tables; without it, the session of another input or the active session does. Other
    values stay as they are, and ``check_streams`` refuses what is no DataFrame. Any object that exports
    Arrow's C stream counts as an Arrow table, for example a DataFrame of polars or a relation of DuckDB.

    Raises
    ------
    SessionError
        NO_SESSION if a table is given, and there is no Spark session that could read it.
    """
    if not isinstance(streams, Mapping) or not any(map(_is_table, streams.values())):
        return streams
    given = [stream for stream in streams.values() if hasattr(stream, "sparkSession")]
    if spark is None:
        spark = given[0].sparkSession if given else SparkSession.getActiveSession()
    if spark is None:
        raise SessionError(
            "NO_SESSION",
            "a table of pandas or Arrow needs a Spark session that reads it, and none is active; "
            "start one, for example with th.local_session()",
        )
    return {
        alias: _read_table(spark, stream) if _is_table(stream) else stream
        for alias, stream in streams.items()
    }


def _is_table(stream: object) -> bool:
    return not hasattr(stream, "sparkSession") and hasattr(stream, "__arrow_c_stream__")


def _read_table(spark: SparkSession, table: Any) -> DataFrame:
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, pd.DataFrame | pa.Table):
        return spark.createDataFrame(table)
    return spark.createDataFrame(pa.table(table))
