"""Maps Spark types to key domains, and writes the SQL that computes a key column.

Spark compares f OP g, of types F and G, in a common type T. With key(x) = x cast to T:
f OP g  iff  encode(key(f)) OP encode(key(g)). For inexact domains, the left side only implies the right.
"""

from thetastream.core.condition import Domain
from thetastream.core.spark_types import (
    DATETIME,
    FLOATING,
    INTEGRAL,
    is_day_time,
    is_integral,
    is_year_month,
    parse_decimal,
)
from thetastream.lowering.plain_columns import Conversion

_UNHASHED = ("map<", "variant", "collate", "char(", "geometry", "geography", "void", "udt")


def find_family(type_: str) -> str | None:
    """Return the family of a type, or None.

    Spark compares types of one family in a common type. It has special rules for other types.
    """
    if type_ in INTEGRAL | FLOATING or parse_decimal(type_):
        return "numeric"
    if type_ in DATETIME:
        return "datetime"
    if is_day_time(type_):
        return "day-time interval"
    if is_year_month(type_):
        return "year-month interval"
    return "time" if type_.startswith("time(") else None


def find_domain(type_: str) -> Domain | None:
    """Return the domain of keys of this type, or None if the engine does not know their order.

    >>> find_domain("decimal(18,4)"), find_domain("string"), find_domain("string collate UTF8_LCASE")
    (<Domain.DECIMAL: 'decimal'>, <Domain.TEXT: 'text'>, None)
    """
    decimal = parse_decimal(type_)
    if decimal:
        return Domain.DECIMAL if decimal[0] <= 18 else Domain.WIDE_DECIMAL
    if type_ in FLOATING:
        return Domain.FLOAT
    if type_ == "boolean" or find_family(type_):
        return Domain.INT
    return Domain.TEXT if type_ in ("string", "binary") else None


def is_hashable(type_: str) -> bool:
    """Whether equal values of this type have equal hashes."""
    return type_ != "interval" and not any(word in type_ for word in _UNHASHED)


def write_cast(text: str, type_: str, common: str) -> str:
    """Write the SQL of an expression in the common type."""
    return text if type_ == common else f"CAST(({text}) AS {common.upper()})"


def write_literal(text: str) -> str:
    """Write text as a SQL expression that does not depend on how the session reads escapes.

    >>> write_literal("near"), write_literal("it's")
    ("'near'", "CAST(X'69742773' AS STRING)")
    """
    if text.isidentifier():
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def quote(name: str) -> str:
    """Quote a name for SQL.

    >>> quote("we`ird")
    '`we``ird`'
    """
    return "`" + name.replace("`", "``") + "`"


def write_key(text: str, type_: str, common: str) -> str:
    """Write the SQL of a key column: the value in the common type, in a form that mapInArrow supports.

    >>> write_key("a.x + 1", "int", "decimal(12,2)")
    'CAST((a.x + 1) AS DECIMAL(12,2))'
    >>> write_key("a.ts", "timestamp", "timestamp")
    'unix_micros(a.ts)'
    """
    value = write_cast(text, type_, common)
    if common == "timestamp":
        return Conversion.MICROS.write(value)
    if is_year_month(common):
        return f"CAST(CAST(({value}) AS INTERVAL MONTH) AS INT)"
    return value


def is_same_key(column_type: str, common: str) -> bool:
    """Whether a payload column can be used unchanged as the key column in the type ``common``.

    The encoder widens integers to int64 and other numbers to float64, as Spark's casts do.
    """
    if column_type == common:
        return True
    if is_integral(common):
        return is_integral(column_type)
    if common == "double":
        return column_type in INTEGRAL | FLOATING
    kinds = (is_day_time, is_year_month, lambda type_: type_.startswith("time("))
    return any(kind(column_type) and kind(common) for kind in kinds)
