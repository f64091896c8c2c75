"""Encodes the answer of a question as JSON or as an Arrow IPC stream.

JSON has no NaN, no infinite numbers, no bytes and no times. They are written as Spark's ``to_json`` writes
them: ``"NaN"``, ``"Infinity"``, base64, and times in ISO form. Integers keep all their digits.
"""

import base64
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

import pyarrow as pa

from thetastream.errors import QueryError

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
CHUNK_ROWS = 1000
"""The number of rows that are values of Python at one time, because these need much memory."""


def encode_table(rows: pa.Table, media_type: str) -> bytes:
    """Write a table as an Arrow IPC stream or as a JSON array with one object for each row.

    >>> encode_table(pa.table({"x": [1.5, float("nan"), None]}), JSON)
    b'[{"x":1.5},{"x":"NaN"},{"x":null}]'

    Raises
    ------
    QueryError
        STORE_QUERY if the media type cannot have a value of the table, as JSON a time after the year 9999.
    """
    try:
        return _encode_arrow(rows) if media_type == ARROW else _encode_rows(rows)
    except (ValueError, ArithmeticError, RecursionError) as error:  # ArrowInvalid is a ValueError.
        hint = "Cast such values to VARCHAR" + ("" if media_type == ARROW else ", or accept Arrow")
        what = f"a value of the answer cannot be written as {media_type}: {error}"
        raise QueryError("STORE_QUERY", f"{what}. {hint}") from error


def _encode_arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _encode_rows(rows: pa.Table) -> bytes:
    text = bytearray(b"[")
    for start in range(0, len(rows), CHUNK_ROWS):
        if start:
            text += b","
        text += encode_json(rows.slice(start, CHUNK_ROWS).to_pylist())[1:-1]
    text += b"]"
    return bytes(text)


def encode_json(value: Any) -> bytes:
    """Write plain values of Python as JSON."""
    return json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    return value
