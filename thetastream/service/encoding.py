"""Tables as JSON or as an Arrow IPC stream.

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

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"


def encode_table(rows: pa.Table, media_type: str) -> bytes:
    """Write a table as an Arrow IPC stream or as a JSON array with one object for each row.

    >>> encode_table(pa.table({"x": [1.5, float("nan"), None]}), JSON)
    b'[{"x":1.5},{"x":"NaN"},{"x":null}]'
    """
    if media_type == ARROW:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())
    return encode_json(rows.to_pylist())


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
