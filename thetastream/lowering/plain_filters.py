"""Filters that Arrow evaluates as Spark does: a column of a stream beside literals.

    a.x > 3,  3.5 >= a.price,  a.x BETWEEN 1 AND 5,  a.symbol = 'A',  a.symbol IN ('A', 'B')

A column of integers stands beside integers, FLOAT and DOUBLE beside short numbers, and STRING beside texts.
Spark evaluates all other filters. It compares in a type that both sides have in common. Here, int64, float64
and the bytes of texts take its place, for literals with which the result is the same.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.conditions import Phrase, split_comparisons, tokenize
from thetastream.conditions.phrases import FLIPPED

Value = int | float | str
_INTEGER = re.compile(r"-?\d{1,18}")
_DECIMAL = re.compile(r"-?(\d+\.\d*|\.\d+)")
_TEXT = re.compile(r"'[^'$]*'")
"""A text in which Spark replaces nothing. It replaces ``${name}`` by the value of a setting."""
_MOST_DIGITS = 15
"""Spark and Python round decimal numbers of so many digits to the same DOUBLE."""
_COMPARE = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_IN = "IN"


@dataclass(frozen=True)
class PlainFilter:
    """A column of the stream that is compared with literals. Picklable."""

    field: str
    op: str
    """One of ``= < <= > >=``, or ``IN``, which alone may have several literals."""
    values: tuple[Value, ...]

    def check(self, column: pa.Array) -> pa.Array:
        """Compute which values of a column pass. That of NULL is NULL or false.

        >>> above = PlainFilter("x", ">", (1,))
        >>> above.check(pa.array([1.0, 2.0, float("nan"), None])).to_pylist()
        [False, True, True, None]
        """
        common = _widen(column.type)
        wide, literals = column.cast(common), pa.array(self.values, common)
        if self.op == _IN:
            return pc.is_in(wide, literals)
        passes = _COMPARE[self.op](wide, literals[0])
        if pa.types.is_floating(common) and self.op in (">", ">="):
            # To Spark, NaN is the largest number.
            return pc.or_(passes, pc.is_nan(wide))
        return passes


def _widen(type_: pa.DataType) -> pa.DataType:
    """Find the type in which the values of a column are compared with literals."""
    if pa.types.is_integer(type_):
        return pa.int64()
    return pa.float64() if pa.types.is_floating(type_) else type_


def read_plain_filters(
    text: str, read_name: Callable[[str], str | None], types: Mapping[str, pa.DataType]
) -> list[PlainFilter] | None:
    """Read a condition on one stream as filters that must all pass; None if Spark must evaluate it.

    ``read_name`` reads the name of a column of the stream, and ``types`` has the types of the columns.

    >>> columns = {"x": pa.int32(), "t": pa.string()}
    >>> read = lambda text: read_plain_filters(text, {"a.x": "x", "a.t": "t"}.get, columns)
    >>> [(one.field, one.op, one.values) for one in read("a.x BETWEEN 1 AND 5")]
    [('x', '>=', (1,)), ('x', '<=', (5,))]
    >>> read("a.t IN ('A', 'B')")[0].values, read("a.x > '3'"), read("a.x + 1 > 3")
    (('A', 'B'), None, None)
    """
    if "\\" in text:
        return None  # To Spark, it continues a comment on the next line.
    found = []
    for left, op, right in _split(tokenize(text).bare()):
        column, literals = read_name(left.text), right
        if column is None and op != _IN:
            # The literal stands first.
            column, op, literals = read_name(right[0].text), FLIPPED[op], [left]
        if column is None:
            return None
        values = _read_literals([one.text for one in literals], types[column], op)
        if values is None:
            return None
        found.append(PlainFilter(column, op, values))
    return found or None


def _split(phrase: Phrase) -> list[tuple[Phrase, str, list[Phrase]]]:
    """Split a condition into comparisons that must all be true; nothing if it has another form."""
    kinds = [phrase.tokens[n].kind for n in phrase.top]
    if kinds.count("IN") == 1:
        at = phrase.top[kinds.index("IN")]
        return [(phrase.slice(0, at).bare(), _IN, phrase.slice(at + 1).bare().split_at_commas())]
    found = split_comparisons(phrase)
    is_plain = all(one.limit is None for one in found)
    return [(one.f, one.op, [one.g]) for one in found] if is_plain else []


def _read_literals(texts: Sequence[str], type_: pa.DataType, op: str) -> tuple[Value, ...] | None:
    """Read literals beside a column of a type; None if Spark may compare otherwise."""
    if pa.types.is_integer(type_) and all(map(_INTEGER.fullmatch, texts)):
        return tuple(map(int, texts))
    if pa.types.is_string(type_) and all(map(_TEXT.fullmatch, texts)):
        return tuple(text[1:-1] for text in texts)
    # Long lists are sets to Spark, in which 0.0 and -0.0 differ.
    if pa.types.is_floating(type_) and op != _IN and all(_is_short(text, type_) for text in texts):
        return tuple(map(float, texts))
    return None


def _is_short(text: str, type_: pa.DataType) -> bool:
    """Whether a number has the same place among the values of FLOAT or DOUBLE for Spark and for Python."""
    if _INTEGER.fullmatch(text):
        # FLOAT has 24 bits for the digits of a number, and DOUBLE has 53.
        return abs(int(text)) <= 1 << (24 if pa.types.is_float32(type_) else 53)
    return bool(_DECIMAL.fullmatch(text)) and sum(map(str.isdecimal, text)) <= _MOST_DIGITS
