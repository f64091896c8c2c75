"""Spark types as key domains: which types compare how, and the SQL that computes a key column.

For a comparison f OP g over types F, G in the common type T that Spark compares in:
f OP g  iff  encode(key(f)) OP encode(key(g)), where key casts to T; for inexact domains only "if".
"""

import re

from thetastream.condition import Domain

_INTEGRAL = {"tinyint", "smallint", "int", "bigint"}
_FLOATING = {"float", "double"}
_DATETIME = {"date", "timestamp", "timestamp_ntz"}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_UNHASHED = ("map<", "variant", "collate", "char(", "geometry", "geography", "void", "udt")


def is_integral(type_: str) -> bool:
    """Byte to long."""
    return type_ in _INTEGRAL


def is_floating(type_: str) -> bool:
    """Float and double."""
    return type_ in _FLOATING


def is_day_time(type_: str) -> bool:
    """Any day-time interval, whatever its fields."""
    return type_.startswith("interval ") and "month" not in type_ and "year" not in type_


def is_year_month(type_: str) -> bool:
    """Any year-month interval."""
    return type_.startswith("interval ") and not is_day_time(type_)


def decimal_of(type_: str) -> tuple[int, int] | None:
    """Precision and scale, or None for another type.

    >>> decimal_of("decimal(12,2)"), decimal_of("double")
    ((12, 2), None)
    """
    found = _DECIMAL.fullmatch(type_)
    return (int(found[1]), int(found[2])) if found else None


def family(type_: str) -> str | None:
    """Types of one family have a common type that Spark compares in; others compare by rules of their own."""
    if type_ in _INTEGRAL | _FLOATING or decimal_of(type_):
        return "numeric"
    if type_ in _DATETIME:
        return "datetime"
    if is_day_time(type_):
        return "day-time interval"
    if is_year_month(type_):
        return "year-month interval"
    return "time" if type_.startswith("time(") else None


def domain_of(type_: str) -> Domain | None:
    """Domain of keys of this type; None if keys have no order the engine knows.

    >>> domain_of("decimal(18,4)"), domain_of("string"), domain_of("string collate UTF8_LCASE")
    (<Domain.DECIMAL: 'decimal'>, <Domain.TEXT: 'text'>, None)
    """
    decimal = decimal_of(type_)
    if decimal:
        return Domain.DECIMAL if decimal[0] <= 18 else Domain.WIDE_DECIMAL
    if type_ in _FLOATING:
        return Domain.FLOAT
    if type_ == "boolean" or family(type_):
        return Domain.INT
    return Domain.TEXT if type_ in ("string", "binary") else None


def is_hashable(type_: str) -> bool:
    """Whether equal values of this type have equal hashes."""
    return type_ != "interval" and not any(word in type_ for word in _UNHASHED)


def cast(text: str, type_: str, common: str) -> str:
    """SQL of the expression in the common type."""
    return text if type_ == common else f"CAST(({text}) AS {common.upper()})"


def quoted(name: str) -> str:
    """A name as SQL.

    >>> quoted("we`ird")
    '`we``ird`'
    """
    return "`" + name.replace("`", "``") + "`"


def key_sql(text: str, type_: str, common: str) -> str:
    """SQL of a key column: the common type, in a form that mapInArrow carries.

    >>> key_sql("a.x + 1", "int", "decimal(12,2)")
    'CAST((a.x + 1) AS DECIMAL(12,2))'
    >>> key_sql("a.ts", "timestamp", "timestamp")
    'unix_micros(a.ts)'
    """
    value = cast(text, type_, common)
    if common == "timestamp":
        return f"unix_micros({value})"
    if is_year_month(common):
        return f"CAST(CAST(({value}) AS INTERVAL MONTH) AS INT)"
    return value


def is_same_key(column_type: str, common: str) -> bool:
    """Whether the payload column serves as the key column of ``common`` as it is.

    The encoder widens integers to int64 and numbers to float64, as Spark's casts do.
    """
    if column_type == common:
        return True
    if is_integral(common):
        return is_integral(column_type)
    if common == "double":
        return column_type in _INTEGRAL | _FLOATING
    kinds = (is_day_time, is_year_month, lambda type_: type_.startswith("time("))
    return any(kind(column_type) and kind(common) for kind in kinds)
