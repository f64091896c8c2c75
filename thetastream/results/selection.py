"""Selects the results that a reader asks for, by a range of time and by values or ranges of keys.

    value of a key             bytes, in the order that the values have in Spark SQL
    integer, date, time        8 bytes in big-endian order, with the sign bit inverted
    float, double              8 bytes of IEEE 754, with all bits of negative numbers inverted
    decimal                    16 bytes of the number without its point
    text, bytes                the first ``LONGEST`` bytes

Two long texts may have the same bytes. So a search by bytes finds all rows of a key and sometimes other rows,
which the caller must leave out.
"""

import math
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.errors import QueryError
from thetastream.results.description import Description
from thetastream.results.staged import Staged, find_bounds, find_type, split_path

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts that the service and Spark write for numbers that JSON does not have."""
LONGEST = 256
"""The largest number of bytes that are written of a text."""
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Range:
    """A range of values of one column. None stands for an open end."""

    column: str
    path: tuple[str, ...]
    """The name of the column, and the names of the fields inside it."""
    low: pa.Scalar | None
    high: pa.Scalar | None
    includes_high: bool = True
    """Whether the upper end belongs to the range. The lower end always does."""

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Both ends in the form of ``Bounds``. None stands for an open end, or for a type without bounds."""
        low, high = (None if end is None else _find_value(end) for end in (self.low, self.high))
        return low, high


@dataclass(frozen=True)
class Selection:
    """The rows that lie in all ranges."""

    ranges: tuple[Range, ...] = ()

    @classmethod
    def read(
        cls, description: Description, since: Any, until: Any, key: Mapping[str, Any] | None
    ) -> "Selection":
        """Read what a reader asked for.

        Raises
        ------
        QueryError
            NO_TIME_COLUMN, STORE_KEY or BAD_VALUE.
        """
        ranges = []
        if since is not None or until is not None:
            if description.time is None:
                raise QueryError(
                    "NO_TIME_COLUMN", "since and until need a column of time, and this store has none"
                )
            low, high = (_make_scalar(description, description.time, end) for end in (since, until))
            ranges.append(
                Range(
                    description.time,
                    split_path(description.schema, description.time),
                    low,
                    high,
                    includes_high=False,
                )
            )
        if not isinstance(key, Mapping | None):
            what = "key must map key columns to values"
            raise QueryError("BAD_VALUE", f'{what}, as in {{"a.symbol": "x"}}, not {key!r}')
        for column, value in (key or {}).items():
            if column not in description.keys:
                known = ", ".join(description.keys) or "none"
                raise QueryError("STORE_KEY", f"key {column!r} must be a key of the store ({known})")
            ends = value if isinstance(value, tuple) else (value, value)
            if len(ends) != 2 or value is None:
                raise QueryError("BAD_VALUE", f"key {column!r} must be a value or a pair, not {value!r}")
            low, high = (_make_scalar(description, column, end) for end in ends)
            ranges.append(Range(column, split_path(description.schema, column), low, high))
        return cls(tuple(ranges))

    def keep(self, staged: Iterable[Staged]) -> Iterator[Staged]:
        """Yield staged rows, except those whose bounds show that no row lies in all ranges."""
        for wanted in self.ranges:
            staged = _keep_overlapping(wanted, staged)
        return iter(staged)

    @property
    def filter(self) -> Any:
        """The selection as an expression of Arrow; None if it selects all rows."""
        parts = [part for one in self.ranges for part in _write_filters(one)]
        return reduce(and_, parts) if parts else None


def _write_filters(wanted: Range) -> Iterator[Any]:
    """Yield the conditions of a range. NaN is equal to itself and greater than all numbers, as in Spark."""
    import pyarrow.compute as pc

    column = pc.field(*wanted.path) if len(wanted.path) > 1 else pc.field(wanted.path[0])
    low, high = wanted.low, wanted.high
    if low is not None and pa.types.is_floating(low.type):
        yield column.is_nan() if _is_nan(low) else (column >= low) | column.is_nan()
    elif low is not None:
        yield column >= low
    if high is not None:
        if _is_nan(high):
            yield column.is_valid()
        else:
            yield column <= high if wanted.includes_high else column < high


def _is_nan(scalar: pa.Scalar) -> bool:
    value = scalar.as_py()
    return bool(value != value)


def _keep_overlapping(wanted: Range, staged: Iterable[Staged]) -> Iterator[Staged]:
    # This loop calls no functions, because a store may have very many files.
    column, (low, high), includes_high = wanted.column, wanted.bounds, wanted.includes_high
    for one in staged:
        bounds = one.bounds.get(column)
        if bounds is None or (
            (low is None or bounds[1] >= low)
            and (high is None or (bounds[0] <= high if includes_high else bounds[0] < high))
        ):
            yield one


def _find_value(scalar: pa.Scalar) -> Any:
    found = find_bounds(pa.array([scalar.as_py()], scalar.type))
    return None if found is None else found[0]


def _make_scalar(description: Description, column: str, value: Any) -> pa.Scalar | None:
    if value is None:
        return None
    kind = find_type(description.schema, column)
    asked = value
    try:
        if pa.types.is_timestamp(kind) and isinstance(value, str | date):
            value = _read_instant(value, column, has_zone=kind.tz is not None)
        value = _read_text(value, kind) if isinstance(value, str) else value
        scalar = pa.scalar(value, kind)
        # An instant that Python cannot have in UTC raises OverflowError.
        is_exact = scalar.as_py() == value or not pa.types.is_integer(kind)
    except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
        raise QueryError("BAD_VALUE", f"{column!r} must be a value of type {kind}, not {asked!r}") from error
    if not is_exact:
        raise QueryError("BAD_VALUE", f"{column!r} must be a value of type {kind}, not {asked!r}")
    return scalar


def _read_text(value: str, kind: pa.DataType) -> Any:
    """Read a text as a value of a type that JSON does not have. The service writes such values as texts."""
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_binary(kind):
        return b64decode(value, validate=True)
    return _NOT_FINITE.get(value, value) if pa.types.is_floating(kind) else value


def _read_instant(value: "str | date", column: str, has_zone: bool) -> datetime:
    """Read an instant. A time without a zone is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            what = (
                f'a value of {column!r} must be a time in ISO form, as in "2026-01-05 09:30", not {value!r}'
            )
            raise QueryError("BAD_VALUE", what) from error
    elif not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if has_zone:
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value


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
