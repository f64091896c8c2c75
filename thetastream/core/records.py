"""Records as plain values of JSON: what manifests, offsets and messages hold.

    encode : record -> values        decode : (type, values) -> record

A record is a dataclass or a named tuple. A dataclass is written as an object with its fields, and a named
tuple as a list. A field that is missing in the values has its default, so a field that is
added later needs one.
"""

from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")


def encode(record: Any) -> Any:
    """Convert a record to plain values, which ``json.dumps`` writes.

    >>> from thetastream.core.identity import Part
    >>> encode({1: Part("a.x<b.x", "a.x < b.x")})
    {'1': ('a.x<b.x', 'a.x < b.x', 'equal')}
    """
    return msgspec.to_builtins(record, str_keys=True, enc_hook=_read_number)


def decode(kind: type[T], values: Any) -> T:
    """Read what ``encode`` returned.

    Raises
    ------
    ValueError
        If the values are no record of this type. The text names the field.
    """
    return msgspec.convert(values, kind, str_keys=True)


def _read_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a record must consist of plain values, not {type(value).__name__}")
