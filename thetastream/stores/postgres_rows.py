"""Converts rows of Arrow for a table of PostgreSQL, and back.

Arrow                    PostgreSQL
integers                 SMALLINT, INTEGER, BIGINT
float, double            REAL, DOUBLE PRECISION
decimal                  NUMERIC
boolean, string, binary  BOOLEAN, TEXT, BYTEA
date, time               DATE, TIME
timestamp                TIMESTAMPTZ with a time zone, else TIMESTAMP
struct, list, map        JSONB; a map is a list of pairs
"""

import json
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from thetastream.errors import QueryError

_NAMES = (
    (pa.types.is_int8, "SMALLINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "REAL"),
    (pa.types.is_float64, "DOUBLE PRECISION"),
    (pa.types.is_decimal, "NUMERIC"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_string, "TEXT"),
    (pa.types.is_binary, "BYTEA"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (pa.types.is_null, "TEXT"),
    (pa.types.is_nested, "JSONB"),
)


def name_type(kind: pa.DataType) -> str:
    """Name the type of PostgreSQL for a type of Arrow.

    Raises
    ------
    QueryError
        STORE_COLUMN.

    Examples
    --------
    >>> [name_type(kind) for kind in (pa.int64(), pa.timestamp("us", "UTC"), pa.list_(pa.string()))]
    ['BIGINT', 'TIMESTAMPTZ', 'JSONB']
    """
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
    for test, name in _NAMES:
        if test(kind):
            return name
    raise QueryError("STORE_COLUMN", f"PostgreSQL keeps no column of type {kind}; cast it, as to STRING")


def encode(batch: pa.RecordBatch) -> bytes:
    """Write rows as CSV text that COPY reads: NULL is empty, every other value is quoted."""
    from pyarrow import csv

    columns = [_encode_column(column) for column in batch.columns]
    sink = pa.BufferOutputStream()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), sink, options)
    return bytes(sink.getvalue().to_pybytes())


def decode(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows as psycopg reads them."""
    found = list(rows)
    arrays = [
        pa.array([_restore(row[n], field.type) for row in found], field.type)
        for n, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _encode_column(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if value is None else _dump(value) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    return column


def _dump(value: Any) -> str:
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Turn a value into one that JSON can hold."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def _restore(value: Any, kind: pa.DataType) -> Any:
    """Restore a value of PostgreSQL, or one inside a column of type JSONB."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _restore(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return [(_restore(key, kind.key_type), _restore(item, kind.item_type)) for key, item in value]
    if pa.types.is_list(kind):
        return [_restore(inner, kind.value_type) for inner in value]
    if pa.types.is_floating(kind):
        return float(value)
    if not isinstance(value, str):
        return value
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_time(kind):
        return time.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind):
        return bytes.fromhex(value)
    return value
