"""Writes values of a key as bytes. The bytes have the same order as the values have in Spark SQL.

    value                      bytes
    integer, date, time        8 bytes in big-endian order, with the sign bit inverted
    float, double              8 bytes of IEEE 754, with all bits of negative numbers inverted
    decimal                    16 bytes of the number without its point
    text, bytes                the first ``LONGEST`` bytes

Two long texts may have the same bytes. So a search by bytes finds all rows of a key and sometimes other rows,
which the caller must leave out.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LONGEST = 256
"""The largest number of bytes that are written of a text."""
_SIGN = np.uint64(1 << 63)


def has_key_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type can be written as bytes."""
    return bool(_is_discrete(kind) or _is_text(kind) or pa.types.is_floating(kind) or _is_decimal(kind))


def write_keys(values: "pa.Array | pa.ChunkedArray") -> list[bytes]:
    """Write the distinct values that are not NULL.

    >>> write_keys(pa.array([1, None, 1], pa.int8()))
    [b'\\x80\\x00\\x00\\x00\\x00\\x00\\x00\\x01']
    >>> small, large = write_keys(pa.array([-2.5, float("nan")]))
    >>> small < write_keys(pa.array([float("inf")]))[0] < large
    True
    """
    kind = values.type
    found = pc.drop_null(pc.unique(values))
    if _is_text(kind):
        return list({_write_text(one)[:LONGEST] for one in found.to_pylist()})
    if _is_decimal(kind):
        return [(_drop_point(one) + (1 << 127)).to_bytes(16) for one in found.to_pylist()]
    bits = _order_floats(found) if pa.types.is_floating(kind) else _order_integers(found)
    written = bits.astype(">u8").tobytes()
    return list(dict.fromkeys(written[start : start + 8] for start in range(0, len(written), 8)))


def write_key(value: pa.Scalar) -> bytes:
    """Write one value, which is not NULL."""
    return write_keys(pa.array([value.as_py()], value.type))[0]


def _order_integers(values: Any) -> Any:
    if not pa.types.is_integer(values.type):
        width = pa.int32() if values.type.bit_width == 32 else pa.int64()
        values = values.cast(pa.int8() if pa.types.is_boolean(values.type) else width)
    return values.cast(pa.int64()).to_numpy(zero_copy_only=False).view(np.uint64) ^ _SIGN


def _order_floats(values: Any) -> Any:
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # -0.0 becomes 0.0.
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)  # There are many kinds of NaN.
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _drop_point(value: Any) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _write_text(value: "str | bytes") -> bytes:
    return value.encode() if isinstance(value, str) else value


def _is_discrete(kind: pa.DataType) -> bool:
    is_time = pa.types.is_temporal(kind) and not pa.types.is_interval(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or is_time)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(kind))
