"""Estimates how many bytes a value has in Arrow, by its Spark type."""

_FIXED = {
    "boolean": 0.125,
    "tinyint": 1,
    "smallint": 2,
    "int": 4,
    "float": 4,
    "date": 4,
    "decimal": 16,
    "string": 20,
    "char": 20,
    "varchar": 20,
    "binary": 20,
    "array": 64,
    "map": 64,
    "struct": 64,
    "variant": 64,
    "geometry": 64,
    "geography": 64,
}
"""Bytes of a value by the head of its Spark type; other types have 8.

A text is assumed to have 16 bytes and an offset."""


def estimate_width(type_: str) -> float:
    """Estimate the bytes of a value of a Spark type.

    >>> types = "bigint", "decimal(10,2)", "varchar(9)", "array<int>", "interval day"
    >>> [estimate_width(type_) for type_ in types]
    [8, 16, 20, 64, 8]
    """
    head = type_.split("<")[0].split("(")[0].split(" ")[0]
    return _FIXED.get(head, 8)
