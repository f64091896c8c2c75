"""Writes the key of a collated text: a text of equal bytes for equal texts, in the same order.

    key(x)  =  lower(x) without final sigmas    UTF8_LCASE
    key(x)  =  x                                UTF8_BINARY
    key(x)  =  key(rtrim(x))                    their variants with _RTRIM

Spark compares by UTF8_LCASE code point by code point. Its ``lower`` reads whole words, and differs only in
the sigma at the end of a word. The other collations compare by the tables of ICU, and no SQL
function of Spark returns their keys.
"""

from thetastream.lowering.domains import write_cast

_RTRIM = "_RTRIM"
_BASES = ("UTF8_BINARY", "UTF8_LCASE")


def is_collated(type_: str) -> bool:
    """Whether texts of this type are compared by a collation other than by their bytes."""
    return type_.startswith("string collate ")


def write_collation_key(text: str, type_: str, common: str) -> str | None:
    """Write the key of an expression in a collated type. Return None if no SQL function computes it.

    >>> write_collation_key("a.s", "string", "string collate UTF8_BINARY_RTRIM")
    'rtrim((CAST((a.s) AS STRING COLLATE UTF8_BINARY_RTRIM)) COLLATE UTF8_BINARY)'
    """
    name = common.removeprefix("string collate ").upper()
    base = name.removesuffix(_RTRIM)
    if base not in _BASES:
        return None
    key = f"({write_cast(text, type_, common)}) COLLATE UTF8_BINARY"
    key = f"rtrim({key})" if name.endswith(_RTRIM) else key
    return f"replace(lower({key}), 'ς', 'σ')" if base == "UTF8_LCASE" else key
