"""Turns tables of pandas and Arrow into batch DataFrames, so that a join takes them as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from thetastream.errors import QueryError, SessionError

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
            "a table of pandas or Arrow needs a Spark session that reads it, and none is active; "
            "start one, for example with th.local_session()",
        )
    return {
        alias: _read_table(spark, alias, stream) if _is_table(stream) else stream
        for alias, stream in streams.items()
    }


def _is_table(stream: object) -> bool:
    return not hasattr(stream, "sparkSession") and hasattr(stream, "__arrow_c_stream__")


def _read_table(spark: SparkSession, alias: str, table: Any) -> DataFrame:
    import pandas as pd
    import pyarrow as pa

    if not isinstance(table, pd.DataFrame | pa.Table):
        table = pa.table(table)
    if isinstance(table, pd.DataFrame):
        columns = {
            str(name): pa.array(table[name]) for name, type_ in table.dtypes.items() if type_.kind in "mM"
        }
    else:
        columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, column in columns.items():
        if any(map(_has_nanoseconds, _list_leaves(column))):
            raise _make_nanoseconds_error(alias, name, isinstance(table, pd.DataFrame))
    return spark.createDataFrame(table)


def _list_leaves(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """Yield the values of a column, also those inside structs, lists and maps."""
    import pyarrow as pa

    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_struct(chunk.type):
            for field in chunk.flatten():
                yield from _list_leaves(field)
        elif pa.types.is_map(chunk.type):
            yield from _list_leaves(chunk.keys)
            yield from _list_leaves(chunk.items)
        elif pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type):
            yield from _list_leaves(chunk.flatten())
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
