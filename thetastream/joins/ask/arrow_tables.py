"""Turns tables of pandas and Arrow, and each ``th.Table``, into batch DataFrames of Spark for a join.

    time with a zone -> TIMESTAMP, a time without one -> TIMESTAMP_NTZ, nanoseconds -> refused

The time zone of the session plays no part. Spark itself reads a time without a zone in that zone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type

from thetastream.core.errors import QueryError, SessionError
from thetastream.spark.tables.declared import declare
from thetastream.spark.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa


def read_tables(streams: Any, spark: SparkSession | None = None) -> Any:
    """Return the streams of a join with a batch DataFrame in place of each table.

    A table is one of pandas or Arrow, or a ``th.Table``, which the DataFrame then is (``find_declared``).

    ``spark`` reads the tables; without it, the session of another input or the active session does. Other
    values stay as they are, and ``check_streams`` refuses what is no DataFrame. Any object that exports
    Arrow's C stream counts as an Arrow table, for example a DataFrame of polars or a relation of DuckDB.
    Times without a zone are TIMESTAMP_NTZ in every session.

    Raises
    ------
    QueryError
        NANOSECONDS if a table has times that Spark, which has microseconds, would cut.
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
            "a table that is no DataFrame of Spark needs a session that reads it, and none is active; "
            "start one, for example with th.local_session()",
        )
    return {
        alias: _read_table(spark, alias, stream) if _is_table(stream) else stream
        for alias, stream in streams.items()
    }


def _is_table(stream: object) -> bool:
    is_arrow = not hasattr(stream, "sparkSession") and hasattr(stream, "__arrow_c_stream__")
    return is_arrow or isinstance(stream, Table)


def _read_table(spark: SparkSession, alias: str, table: Any) -> DataFrame:
    import pandas as pd
    import pyarrow as pa

    if isinstance(table, Table):
        return declare(table, spark)
    if not isinstance(table, pd.DataFrame | pa.Table):
        table = pa.table(table)
    if isinstance(table, pd.DataFrame):
        columns: dict[str, Any] = {}
        for name, type_ in table.dtypes.items():
            if type_.kind == "O" and any(map(_loses_nanoseconds, table[name])):
                raise _make_nanoseconds_error(alias, str(name), is_pandas=True)
            # Columns of objects and categories may hold times too. Spark refuses what Arrow cannot hold.
            with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
                columns |= {str(name): pa.array(table[name])} if type_.kind in "mMO" else {}
    else:
        columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, column in columns.items():
        if any(map(_has_nanoseconds, _list_leaves(column))):
            raise _make_nanoseconds_error(alias, name, isinstance(table, pd.DataFrame))
    if not any(_has_local_times(column.type) for column in columns.values()):
        return spark.createDataFrame(table)
    if isinstance(table, pa.Table):
        return spark.createDataFrame(table, from_arrow_schema(table.schema))
    try:
        schema = from_arrow_schema(pa.Schema.from_pandas(table, preserve_index=False))
    except (pa.ArrowException, PySparkException):
        # Arrow cannot hold another column. Spark may find the types of its values one by one.
        schema = spark.createDataFrame(table).schema
        for name, column in columns.items():
            if _has_local_times(column.type):
                schema[name].dataType = from_arrow_type(column.type)
    return spark.createDataFrame(table, schema)


def _has_local_times(type_: pa.DataType) -> bool:
    """Whether a column of this type has times without a zone, also inside structs, lists and maps."""
    with suppress(PySparkException):
        return from_arrow_type(type_, True) != from_arrow_type(type_, False)
    return False


def _loses_nanoseconds(value: object) -> bool:
    """Whether this object has times of pandas with nanoseconds, which Arrow cuts when it reads objects."""
    import pandas as pd

    if isinstance(value, list | tuple):
        return any(map(_loses_nanoseconds, value))
    if isinstance(value, dict):
        return any(map(_loses_nanoseconds, value.values()))
    if isinstance(value, pd.Timedelta):
        return value.nanoseconds > 0
    return isinstance(value, pd.Timestamp) and value.nanosecond > 0


def _list_leaves(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """Yield the values of a column, also those inside structs, lists, maps and dictionaries."""
    import pyarrow as pa

    types = pa.types
    lists = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_struct(chunk.type):
            for field in chunk.flatten():
                yield from _list_leaves(field)
        elif pa.types.is_map(chunk.type):
            yield from _list_leaves(chunk.keys)
            yield from _list_leaves(chunk.items)
        elif any(is_kind(chunk.type) for is_kind in lists):
            yield from _list_leaves(chunk.flatten())
        elif pa.types.is_dictionary(chunk.type):
            yield from _list_leaves(chunk.dictionary_decode())
        else:
            yield chunk


def _has_nanoseconds(values: pa.Array) -> bool:
    """Whether some of the values are times or spans that are no whole number of microseconds."""
    import pyarrow as pa

    types = pa.types
    if not any(is_kind(values.type) for is_kind in (types.is_timestamp, types.is_duration, types.is_time64)):
        return False
    nanos = values.drop_null().view(pa.int64()).to_numpy()
    return bool(values.type.unit == "ns" and (nanos % 1000 != 0).any())


def _make_nanoseconds_error(alias: str, column: str, is_pandas: bool) -> QueryError:
    if is_pandas:
        cast = f'{alias}["{column}"] = {alias}["{column}"].astype("int64")'
    else:
        cast = f'{alias}["{column}"].cast(pa.int64())'
    return QueryError(
        "NANOSECONDS",
        f"Spark has times of microseconds, and the column {column!r} of {alias!r} has nanoseconds: times "
        f"less than a microsecond apart would become equal; carry them as BIGINT, {cast}, "
        f'and give the event time as th.from_nanos("{column}")',
    )
