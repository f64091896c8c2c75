"""Calls a Python predicate once with made-up rows, so that mistakes are found before the query starts."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, TypeGuard

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    NullType,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from thetastream.conditions import NUMPY, Predicate
from thetastream.core.errors import PredicateError, QueryError
from thetastream.engine.matching import read_answer
from thetastream.lowering.query import Stream

N_ROWS = 2
_CONCLUSIVE = (TypeError, AttributeError, NameError, pa.ArrowNotImplementedError)
"""Exceptions that do not depend on the values. The made-up rows may be the cause of all others."""
_AMBIGUOUS = "truth value of an array"
"""Words of NumPy's ValueError if ``and``, ``or`` or ``if`` gets an array. It has no class of its own."""
_IN_BLOCKS = {
    TimestampType: pa.int64(),
    YearMonthIntervalType: pa.int32(),
    CalendarIntervalType: pa.string(),
    NullType: pa.bool_(),
}
_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, True),
    (pa.types.is_integer, 1),
    (pa.types.is_floating, 1.0),
    (pa.types.is_decimal, Decimal(1)),
    (pa.types.is_string, "a"),
    (pa.types.is_large_string, "a"),
    (pa.types.is_binary, b"a"),
    (pa.types.is_large_binary, b"a"),
    (pa.types.is_date, date(2026, 1, 5)),
    (pa.types.is_timestamp, datetime(2026, 1, 5)),
    (pa.types.is_time, time(9)),
    (pa.types.is_duration, timedelta(seconds=1)),
)


def try_predicate(
    predicate: Predicate,
    streams: Sequence[Stream],
    schemas: Mapping[str, StructType],
    is_case_sensitive: bool,
) -> QueryError | None:
    """Call a predicate, whose columns exist, with two made-up rows.

    Return an error if the call shows that the predicate cannot run. Return None if it succeeds, if it raises
    an exception that may be due to the values, or if no value of a column's type can be made up.
    """
    by_alias = {stream.alias.casefold(): stream for stream in streams}

    def find_type(alias: str, name: str) -> DataType:
        stream = by_alias[alias.casefold()]
        return schemas[stream.alias][str(stream.find(name, is_case_sensitive))].dataType

    columns: dict[str, dict[str, pa.Array]] = {}
    try:
        for alias, names in predicate.columns:
            columns[alias] = {name: _make_up(find_type(alias, name)) for name in names}
    except (PySparkException, pa.ArrowException, LookupError):
        return None
    if predicate.is_encoded:
        columns = {
            alias: {
                name: pa.DictionaryArray.from_arrays(range(N_ROWS), column) for name, column in side.items()
            }
            for alias, side in columns.items()
        }
    call = predicate.adapt(lambda alias, name: isinstance(find_type(alias, name), TimestampType))
    types = {
        f"{alias}.{name}": find_type(alias, name) for alias, names in predicate.columns for name in names
    }
    try:
        answer = call(**{alias: SimpleNamespace(**side) for alias, side in columns.items()})
    except _CONCLUSIVE as error:
        return _make_error(_describe(error, predicate), types, _find_hint(error, predicate))
    except Exception as error:
        if _AMBIGUOUS not in str(error):
            return None
        hint = "; compare element by element: & for and, | for or, ~ for not, each comparison in brackets"
        return _make_error(_describe(error, predicate), types, hint)
    try:
        read_answer(predicate.name, answer, N_ROWS)
    except PredicateError as error:
        return _make_error(error.message, types)
    return None


def _make_up(type_: DataType) -> pa.Array:
    """Make two values of a Spark type, as blocks hold them."""
    arrow = _IN_BLOCKS.get(type(type_)) or to_arrow_type(type_)
    return pa.array([_make_value(arrow)] * N_ROWS, arrow)


def _make_value(type_: pa.DataType) -> Any:
    if pa.types.is_struct(type_):
        return {field.name: _make_value(field.type) for field in type_}
    if pa.types.is_map(type_):
        return [(_make_value(type_.key_type), _make_value(type_.item_type))]
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return [_make_value(type_.value_type)]
    for is_kind, value in _VALUES:
        if is_kind(type_):
            return value
    raise LookupError(f"no value of {type_} is made up")


def _describe(error: Exception, predicate: Predicate) -> str:
    """Describe an exception. If the predicate reads a column that it does not list, the text names the listed
    columns."""
    if _is_about_column(error):
        listed = ", ".join(f"{alias}.{name}" for alias, names in predicate.columns for name in names)
        return f"predicate {predicate.name!r} reads the column {error.name!r}, but it lists {listed}"
    return f"predicate {predicate.name!r} raised {type(error).__name__}: {error}"


def _find_hint(error: Exception, predicate: Predicate) -> str:
    """Find what may help: an exception about the kind of the columns may go away if they are NumPy arrays."""
    if predicate.form == NUMPY or _is_about_column(error):
        return ""
    return '; its columns are Arrow arrays: write @th.predicate("numpy", ...) for NumPy arrays'


def _is_about_column(error: Exception) -> TypeGuard[AttributeError]:
    return isinstance(error, AttributeError) and isinstance(error.obj, SimpleNamespace)


def _make_error(what: str, types: Mapping[str, DataType], hint: str = "") -> QueryError:
    listed = ", ".join(f"{name} {type_.simpleString().upper()}" for name, type_ in types.items())
    return QueryError("PREDICATE_TRIAL", f"{what} (on {N_ROWS} made-up rows of {listed}){hint}")
