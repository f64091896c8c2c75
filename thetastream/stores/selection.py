"""Selects the results that a reader asks for, by a range of time and by values or ranges of keys."""

import math
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa

from thetastream.errors import QueryError
from thetastream.stores.description import Description
from thetastream.stores.staged import Staged, find_bounds, find_type, split_path

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts that the service and Spark write for numbers that JSON does not have."""


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
