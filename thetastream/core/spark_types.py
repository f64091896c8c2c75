"""Questions about Spark's types, which are given by name, as in ``decimal(12,2)``. No Spark is needed."""

import re

INTEGRAL = {"tinyint", "smallint", "int", "bigint"}
FLOATING = {"float", "double"}
DATETIME = {"date", "timestamp", "timestamp_ntz"}
_ORDINARY = INTEGRAL | FLOATING | DATETIME | {"string", "binary", "boolean"}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


def is_integral(type_: str) -> bool:
    """Whether the type is an integer type: byte, short, int or long."""
    return type_ in INTEGRAL


def is_floating(type_: str) -> bool:
    """Whether the type is float or double."""
    return type_ in FLOATING


def is_day_time(type_: str) -> bool:
    """Whether the type is a day-time interval, whatever its fields."""
    return type_.startswith("interval ") and "month" not in type_ and "year" not in type_


def is_year_month(type_: str) -> bool:
    """Whether the type is a year-month interval."""
    return type_.startswith("interval ") and not is_day_time(type_)


def parse_decimal(type_: str) -> tuple[int, int] | None:
    """Read the precision and the scale of a decimal type; None for another type.

    >>> parse_decimal("decimal(12,2)"), parse_decimal("double")
    ((12, 2), None)
    """
    found = _DECIMAL.fullmatch(type_)
    return (int(found[1]), int(found[2])) if found else None


def is_ordinary(type_: str) -> bool:
    """Whether Arrow compares and groups values as Spark does, and equal values have equal Spark hashes."""
    return type_ in _ORDINARY or parse_decimal(type_) is not None
