"""Describes the columns of a query for a store of results."""

from collections.abc import Callable

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thetastream.errors import QueryError
from thetastream.plan.query import RESULT_TIME
from thetastream.spark.event_time import MARK
from thetastream.stores.description import Description
from thetastream.stores.staged import find_type


def describe(columns: StructType, time: str | None, keys: tuple[str, ...]) -> Description:
    """Describe rows with these columns for a store.

    Parameters
    ----------
    columns : StructType
    time : str, optional
        The column of time. By default it is ``result_time``, or the first one that is marked as event time.
    keys : tuple of str

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    names = columns.names
    # DuckDB, and Spark by default, find a column by its name in any case.
    folded = [name.casefold() for name in names]
    doubled = [name for name in names if folded.count(name.casefold()) > 1]
    if doubled:
        what = "columns of a store must have different names (upper and lower case do not count)"
        what += f", and these are one name: {', '.join(sorted(doubled))}"
        raise QueryError("STORE_COLUMN", f"{what}; rename it, as in .selectExpr('a.id AS a_id')")
    try:
        schema = make_all_nullable(to_arrow_schema(columns, timezone="UTC"))
    except PySparkTypeError as error:
        raise QueryError("STORE_COLUMN", f"a column has a type that no store keeps: {error}") from error
    for field in schema:
        if _holds(field.type, pa.types.is_duration) or _holds(field.type, pa.types.is_interval):
            what = f"column {field.name!r} has a type that Parquet does not keep ({field.type})"
            raise QueryError("STORE_COLUMN", f"{what}; cast it, as in CAST({field.name} AS STRING)")
    if time is None:
        marked = [field.name for field in columns if MARK in (field.metadata or {})]
        time = RESULT_TIME if RESULT_TIME in names else next(iter(marked), None)
    for what, column in (("time", time), *(("key", key) for key in keys)):
        if column is not None and not _has_column(schema, column):
            known = ", ".join(schema.names)
            raise QueryError("STORE_COLUMN", f"{what} ({column!r}) must be a column of the results ({known})")
    if time is not None and not pa.types.is_timestamp(find_type(schema, time)):
        what = f"time ({time!r}) must be a column of times, and its type is {find_type(schema, time)}"
        raise QueryError("STORE_COLUMN", f"{what}; cast it to TIMESTAMP")
    for key in keys:
        kind = find_type(schema, key)
        if pa.types.is_nested(kind):
            what = f"key ({key!r}) must be a column of single values, and its type is {kind}"
            raise QueryError("STORE_COLUMN", f"{what}; name a field of it, or another column")
    return Description(schema, time, keys)


def make_all_nullable(schema: pa.Schema) -> pa.Schema:
    """Declare every column and field nullable, because Spark may decide anew in each run which are."""
    return pa.schema([pa.field(field.name, _make_nullable(field.type)) for field in schema])


def _make_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _make_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_make_nullable(kind.key_type), _make_nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_make_nullable(kind.value_type))
    return kind


def _holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or a type inside it, passes a test."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return test(kind) or any(_holds(one, test) for one in inner)


def _has_column(schema: pa.Schema, column: str) -> bool:
    try:
        find_type(schema, column)
    except KeyError:
        return False
    return True
