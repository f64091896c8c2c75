"""Filters that Arrow evaluates as Spark does: a column of a stream beside literals of its own kind.

    a.x > 3,  3.5 >= a.price,  a.x BETWEEN 1 AND 5,  a.symbol = 'A',  a.symbol IN ('A', 'B')

Spark evaluates all other filters, for example those whose literals it would convert to another type.
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
_TEXT = re.compile(r"'[^'\\]*'")
_LARGEST, _MOST_DIGITS = 1 << 24, 15
"""FLOAT has every integer up to this one, and DOUBLE has every decimal number of so many digits."""
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
        # To Spark, NaN is the largest number.
        is_nan = pa.types.is_floating(common) and ">" in self.op
        return pc.or_(passes, pc.is_nan(wide)) if is_nan else passes


def _widen(type_: pa.DataType) -> pa.DataType:
    """Find the type in which the values of a column are compared with all literals of its kind."""
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
    found = []
    for left, op, right in _split(tokenize(text).bare()):
        column, literals = read_name(left.text), right
        if column is None and len(right) == 1:
            # The literal stands first.
            column, op, literals = read_name(right[0].text), FLIPPED.get(op, op), [left]
        values = None if column is None else _read_literals([one.text for one in literals], types[column], op)
        if column is None or values is None:
            return None
        found.append(PlainFilter(column, op, values))
    return found or None


def _split(phrase: Phrase) -> list[tuple[Phrase, str, list[Phrase]]]:
    """Split a condition into comparisons that must all be true; nothing if it has another form."""
    kinds = [phrase.tokens[n].kind for n in phrase.top]
    if kinds.count(_IN) == 1:
        at = phrase.top[kinds.index(_IN)]
        return [(phrase.slice(0, at), _IN, phrase.slice(at + 1).bare().split_at_commas())]
    found = split_comparisons(phrase)
    is_plain = all(one.limit is None for one in found)
    return [(one.f, one.op, [one.g]) for one in found] if is_plain else []


def _read_literals(texts: Sequence[str], type_: pa.DataType, op: str) -> tuple[Value, ...] | None:
    """Read literals beside a column of a type; None if Spark would convert the column or a literal."""
    if pa.types.is_integer(type_) and all(map(_INTEGER.fullmatch, texts)):
        return tuple(map(int, texts))
    if pa.types.is_string(type_) and all(map(_TEXT.fullmatch, texts)):
        return tuple(text[1:-1] for text in texts)
    if pa.types.is_floating(type_) and op != _IN and all(map(_is_exact, texts)):
        return tuple(map(float, texts))
    return None


def _is_exact(text: str) -> bool:
    """Whether a number is the same for Spark and for Python, beside a FLOAT or a DOUBLE."""
    if _INTEGER.fullmatch(text):
        return abs(int(text)) <= _LARGEST
    return bool(_DECIMAL.fullmatch(text)) and sum(map(str.isdecimal, text)) <= _MOST_DIGITS
