"""Converts values of each Spark type to a type that Arrow blocks can hold, and back.

from_block(to_block(x)) equals x, bit for bit.

Spark type           type in blocks
TIMESTAMP            bigint: microseconds since 1970 UTC, so that the session time zone plays no part
year-month interval  int: months
calendar interval    string
VOID                 boolean
any other type       the same type
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    MapType,
    NullType,
    StructField,
    StructType,
    TimestampType,
    UserDefinedType,
    YearMonthIntervalType,
)

from thetastream.core.columns import name_payload
from thetastream.core.errors import QueryError
from thetastream.lowering.domains import quote
from thetastream.lowering.physical import Carried


@dataclass(frozen=True)
class Carrier:
    """The block type of a Spark type, and the SQL expressions that convert a column to it and back."""

    block_type: Callable[[DataType], str]
    to_block: Callable[[str, DataType], str]
    from_block: Callable[[str, DataType], str]


def write_ddl(type_: DataType) -> str:
    """Write a type as DDL that Spark can parse; names of nested fields are quoted.

    >>> write_ddl(ArrayType(StructType([StructField("we ird", NullType())])))
    'array<struct<`we ird`: void>>'
    """
    if isinstance(type_, ArrayType):
        return f"array<{write_ddl(type_.elementType)}>"
    if isinstance(type_, MapType):
        return f"map<{write_ddl(type_.keyType)}, {write_ddl(type_.valueType)}>"
    if isinstance(type_, StructType):
        return "struct<" + ", ".join(f"{quote(f.name)}: {write_ddl(f.dataType)}" for f in type_.fields) + ">"
    return type_.simpleString()


_AS_IS = Carrier(write_ddl, lambda column, _: column, lambda block, _: block)

_CARRIERS: tuple[tuple[type[DataType] | tuple[type[DataType], ...], Carrier], ...] = (
    (
        TimestampType,
        Carrier(
            lambda _: "bigint",
            lambda column, _: f"unix_micros({column})",
            lambda block, _: f"timestamp_micros({block})",
        ),
    ),
    (
        YearMonthIntervalType,
        Carrier(
            lambda _: "int",
            lambda column, _: f"CAST(CAST({column} AS INTERVAL MONTH) AS INT)",
            lambda block, type_: f"CAST(CAST({block} AS INTERVAL MONTH) AS {write_ddl(type_).upper()})",
        ),
    ),
    (
        CalendarIntervalType,
        Carrier(
            lambda _: "string",
            lambda column, _: f"CAST({column} AS STRING)",
            lambda block, _: f"CAST({block} AS INTERVAL)",
        ),
    ),
    (
        NullType,
        Carrier(
            lambda _: "boolean",
            lambda column, _: f"CAST({column} AS BOOLEAN)",
            lambda block, _: "NULL",
        ),
    ),
)


def find_carrier(type_: DataType) -> Carrier | None:
    """Find the carrier of a type; None if blocks cannot hold the type."""
    if not _is_carried_inside(type_):
        return None
    for kind, carrier in _CARRIERS:
        if isinstance(type_, kind):
            return carrier
    return _AS_IS


def _is_carried_inside(type_: DataType, is_nested: bool = False) -> bool:
    if isinstance(type_, ArrayType):
        return _is_carried_inside(type_.elementType, True)
    if isinstance(type_, MapType):
        return _is_carried_inside(type_.keyType, True) and _is_carried_inside(type_.valueType, True)
    if isinstance(type_, StructType):
        return all(_is_carried_inside(field.dataType, True) for field in type_.fields)
    if isinstance(type_, UserDefinedType):
        return False
    return not (is_nested and isinstance(type_, YearMonthIntervalType | CalendarIntervalType))


def carry(alias: str, schema: StructType, first: int) -> tuple[tuple[Carried, ...], list[QueryError]]:
    """Assign the columns of one stream to block columns ``c<first>``, ``c<first + 1>``, ...

    Returns the carried columns, and one QueryError UNSUPPORTED_TYPE for each column that blocks cannot hold.
    """
    carried, problems = [], []
    for number, field in enumerate(schema.fields, first):
        carrier = find_carrier(field.dataType)
        if carrier is None:
            problems.append(_make_error(alias, field))
            continue
        block = name_payload(number)
        column = f"{quote(alias)}.{quote(field.name)}"
        carried.append(
            Carried(
                field=field.name,
                block_column=block,
                block_type=carrier.block_type(field.dataType),
                to_block=carrier.to_block(column, field.dataType),
                from_block=carrier.from_block(quote(block), field.dataType),
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
