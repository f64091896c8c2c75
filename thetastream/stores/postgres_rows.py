"""Converts rows of Arrow into rows of a table of PostgreSQL, and back.

Arrow                    PostgreSQL
integers                 SMALLINT, INTEGER, BIGINT
float, double            REAL, DOUBLE PRECISION
decimal                  NUMERIC
boolean, string, binary  BOOLEAN, TEXT in the order of code points, BYTEA
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
import pyarrow.compute as pc

from thetastream.core.errors import QueryError, StoreError

_NAMES = (
    (pa.types.is_int8, "SMALLINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INTEGER"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "REAL"),
    (pa.types.is_float64, "DOUBLE PRECISION"),
    (pa.types.is_decimal, "NUMERIC"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_string, 'TEXT COLLATE "C"'),
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
    """Write rows as CSV text that COPY reads: NULL is empty, every other value is quoted.

    Raises
    ------
    StoreError
        STORE_VALUE if a text contains the character NUL.
    """
    from pyarrow import csv

    columns = [
        _encode_column(name, column) for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    sink = pa.BufferOutputStream()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), sink, options)
    return bytes(sink.getvalue().to_pybytes())


def decode(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> pa.Table:
    """Make a table from rows that psycopg has read."""
    found = list(rows)
    arrays = [
        pa.array([_restore(row[n], field.type) for row in found], field.type)
        for n, field in enumerate(schema)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def refuse_nul(column: str, value: Any) -> None:
    """Raise if a value is a text that contains the character NUL.

    Raises
    ------
    StoreError
        STORE_VALUE.
    """
    if isinstance(value, str) and "\0" in value:
        what = f"PostgreSQL keeps no text with the character NUL, and column {column!r} has {value[:80]!r}"
        raise StoreError("STORE_VALUE", f"{what}; select replace(..., char(0), '') of the text")


def _encode_column(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_nested(kind):
        texts = [None if value is None else json.dumps(_plain(name, value)) for value in column.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_string(kind):
        with_nul = column.filter(pc.match_substring(column, "\0"))
        refuse_nul(name, with_nul[0].as_py() if len(with_nul) else None)
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else f"\\x{v.hex()}" for v in column.to_pylist()], pa.string())
    return column


def _plain(column: str, value: Any) -> Any:
    """Turn a value of a column into one that JSON can hold."""
    refuse_nul(column, value)
    if isinstance(value, dict):
        return {name: _plain(column, inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(column, inner) for inner in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    # JSONB has neither NaN nor infinite numbers, and -0.0 becomes 0.0 there.
    is_missing = isinstance(value, float) and (not math.isfinite(value) or str(value) == "-0.0")
    if isinstance(value, Decimal) or is_missing:
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
