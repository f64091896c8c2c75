"""Selects the columns of a stream that travel, and assigns them to columns of Arrow blocks.

Columns that blocks cannot hold are refused.
"""

from collections.abc import Collection

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
    YearMonthIntervalType,
)

from thetastream.core.columns import HIDDEN, MARK, name_payload
from thetastream.core.errors import QueryError
from thetastream.lowering.domains import quote
from thetastream.lowering.payload import find_carrier
from thetastream.lowering.physical import Carried

INSTANTS = ("timestamp", "timestamp_ntz")
"""The types of columns that may be the event time of a batch."""


def select_fields(schema: StructType, names: Collection[str] | None, is_streaming: bool) -> StructType:
    """Select the columns with these lower-case names and those that may be the event time.

    None selects all. Hidden columns are never selected.
    """
    fields = [field for field in schema.fields if HIDDEN not in (field.metadata or {})]
    if names is None:
        return StructType(fields)
    kept = [
        field
        for field in fields
        if field.name.casefold() in names
        or MARK in (field.metadata or {})
        or (not is_streaming and field.dataType.simpleString() in INSTANTS)
    ]
    return StructType(kept or fields[:1])  # a tuple without any column would not be counted


def write_ddl(type_: DataType) -> str:
    """Write a type as DDL that Spark can parse; names of nested fields are quoted.

    >>> write_ddl(ArrayType(StructType([StructField("we ird", ArrayType(CalendarIntervalType()))])))
    'array<struct<`we ird`: array<interval>>>'
    """
    if isinstance(type_, ArrayType):
        return f"array<{write_ddl(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"map<{write_ddl(type_.keyType)}, {write_ddl(type_.valueType)}>"
    if isinstance(type_, StructType):
        return "struct<" + ", ".join(f"{quote(f.name)}: {write_ddl(f.dataType)}" for f in type_.fields) + ">"
    return type_.simpleString()


def _is_carried(type_: DataType, is_nested: bool = False) -> bool:
    if isinstance(type_, ArrayType):
        return _is_carried(type_.elementType, True)
    if isinstance(type_, MapType):
        return _is_carried(type_.keyType, True) and _is_carried(type_.valueType, True)
    if isinstance(type_, StructType):
        return all(_is_carried(field.dataType, True) for field in type_.fields)
    if isinstance(type_, UserDefinedType):
        return False
    return not (is_nested and isinstance(type_, YearMonthIntervalType | CalendarIntervalType))


def carry(alias: str, schema: StructType, first: int) -> tuple[tuple[Carried, ...], list[QueryError]]:
    """Assign the columns of one stream to block columns ``c<first>``, ``c<first + 1>``, ...

    Returns the carried columns, and one QueryError UNSUPPORTED_TYPE for each column that blocks cannot hold.
    """
    carried, problems = [], []
    for number, field in enumerate(schema.fields, first):
        if not _is_carried(field.dataType):
            problems.append(_make_error(alias, field))
            continue
        type_, block = write_ddl(field.dataType), name_payload(number)
        carrier = find_carrier(type_)
        column = f"{quote(alias)}.{quote(field.name)}"
        carried.append(
            Carried(
                field=field.name,
                block_column=block,
                block_type=carrier.block_type(type_),
                to_block=carrier.to_block(column),
                from_block=carrier.from_block(quote(block), type_),
                type=field.dataType.simpleString(),
            )
        )
    return tuple(carried), problems


def _make_error(alias: str, field: StructField) -> QueryError:
    return QueryError(
        "UNSUPPORTED_TYPE",
        f"column {alias}.{field.name} has type {field.dataType.simpleString()}, which Arrow cannot carry; "
        "drop the column before the join, or cast it (a user-defined type to an ARRAY)",
    )
