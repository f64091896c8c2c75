"""The type that Arrow blocks hold for each Spark type, and the SQL texts that convert values to it and back.

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


@dataclass(frozen=True)
class Carrier:
    """The block type of a Spark type, and the SQL expressions that convert a column to it and back.

    Types are DDL texts, and columns are SQL texts.
    """

    block_type: Callable[[str], str]
    to_block: Callable[[str], str]
    from_block: Callable[[str, str], str]
    """(block column, Spark type) -> SQL."""


_AS_IS = Carrier(lambda type_: type_, lambda column: column, lambda block, _: block)
_TIMESTAMP = Carrier(
    lambda _: "bigint",
    lambda column: f"unix_micros({column})",
    lambda block, _: f"timestamp_micros({block})",
)
_YEAR_MONTH = Carrier(
    lambda _: "int",
    lambda column: f"CAST(CAST({column} AS INTERVAL MONTH) AS INT)",
    lambda block, type_: f"CAST(CAST({block} AS INTERVAL MONTH) AS {type_.upper()})",
)
_CALENDAR = Carrier(
    lambda _: "string",
    lambda column: f"CAST({column} AS STRING)",
    lambda block, _: f"CAST({block} AS INTERVAL)",
)
_VOID = Carrier(lambda _: "boolean", lambda column: f"CAST({column} AS BOOLEAN)", lambda block, _: "NULL")
_CARRIERS = {
    "timestamp": _TIMESTAMP,
    "interval year": _YEAR_MONTH,
    "interval month": _YEAR_MONTH,
    "interval year to month": _YEAR_MONTH,
    "interval": _CALENDAR,
    "void": _VOID,
}


def find_carrier(type_: str) -> Carrier:
    """Find the carrier of a type that blocks can hold.

    >>> find_carrier("timestamp").from_block("c0", "timestamp")
    'timestamp_micros(c0)'
    >>> find_carrier("array<int>").block_type("array<int>")
    'array<int>'
    """
    return _CARRIERS.get(type_, _AS_IS)
