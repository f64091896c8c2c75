"""Operands of measures: a column of one side of the matches, or a calculation from columns of both sides.

    SELECT sum(r.price * s.amount)
    streams: r.price AS v0, s.amount AS v1       computed by Spark, once for every tuple
    units:   v0 * v1                             computed for every match

A calculation gives the value and the type of Spark's own operator. A number is NULL where an operand is NULL.
Conditions have three values, as in SQL: ``false AND NULL`` is false.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from thetastream.core.blocks import Matches
from thetastream.core.errors import ThetastreamError
from thetastream.core.sides import Side
from thetastream.core.spark_types import parse_decimal

ADD, SUBTRACT, MULTIPLY, ABSOLUTE, DOUBLE, WHERE = "+", "-", "*", "abs", "double", "where"
"""The operators of calculations. ``DOUBLE`` is a cast; ``WHERE`` keeps its second operand where the first is
true."""
EQUAL, LESS, AND, OR, NOT = "=", "<", "and", "or", "not"
"""The operators of conditions. Every comparison can be written with these: ``x <= y`` is ``not (y < x)``."""
CONDITIONS = frozenset({EQUAL, LESS, AND, OR, NOT})
_NUMBERS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""The precision of the decimal that Spark makes of an integer before it combines it with a decimal."""
_DIGITS = {_NUMBERS[name]: digits for name, digits in DIGITS.items()}
_WRAPPING = {ADD: pc.add, SUBTRACT: pc.subtract, MULTIPLY: pc.multiply, ABSOLUTE: pc.abs}
_CHECKED = {
    ADD: pc.add_checked,
    SUBTRACT: pc.subtract_checked,
    MULTIPLY: pc.multiply_checked,
    ABSOLUTE: pc.abs_checked,
}


class Operand(Protocol):
    """The values that a measure folds, one for each match."""

    def read(self, matches: Matches) -> pa.Array:
        """Return the values of the matches."""

    def columns(self) -> Iterator["SideColumn"]:
        """Yield the columns of the matches that the operand reads."""


@dataclass(frozen=True)
class SideColumn:
    """A column of one side."""

    side: Side
    name: str

    def read(self, matches: Matches) -> pa.Array:
        return (matches.left, matches.right)[self.side].column(self.name)

    def columns(self) -> Iterator["SideColumn"]:
        yield self


@dataclass(frozen=True)
class Calculation:
    """An operator that is applied to operands.

    Parameters
    ----------
    operator : str
        One of the operators of this module.
    operands : sequence of Operand
        One for ``ABSOLUTE``, ``DOUBLE`` and ``NOT``, two or more for ``AND`` and ``OR``, two for the others.
    type : str
        Spark's type of the result: an integer type, ``float``, ``double``, a decimal, or ``boolean``.
    is_checked : bool
        Whether a number beyond the type is an error, as in ANSI mode. If not, integers wrap around.

    Examples
    --------
    >>> price, amount = SideColumn(Side.LEFT, "price"), SideColumn(Side.RIGHT, "amount")
    >>> left = pa.RecordBatch.from_pydict({"price": [1.5, 2.0, None]})
    >>> right = pa.RecordBatch.from_pydict({"amount": [2.0, 3.0, 4.0]})
    >>> Calculation(MULTIPLY, (price, amount), "double", True).read(Matches(left, right)).to_pylist()
    [3.0, 6.0, None]
    """

    operator: str
    operands: tuple[Operand, ...]
    type: str
    is_checked: bool

    def read(self, matches: Matches) -> pa.Array:
        """Return the values of the matches.

        Raises
        ------
        ThetastreamError
            ARITHMETIC_OVERFLOW if a number is beyond the type and this is checked.
        """
        values = [operand.read(matches) for operand in self.operands]
        if self.operator == WHERE:
            is_kept, value = values
            return pc.if_else(is_kept, value, pa.scalar(None, value.type))
        if self.operator in CONDITIONS:
            return _decide(self.operator, values)
        if parse_decimal(self.type) is None:
            # Every operand becomes a number of the result's type first, as in Spark.
            values = [value.cast(_NUMBERS[self.type], safe=False) for value in values]
        else:
            values = [_make_decimal(value) for value in values]
        if self.operator == DOUBLE:
            return values[0]
        function = (_CHECKED if self.is_checked else _WRAPPING)[self.operator]
        try:
            return function(*values)
        except pa.ArrowInvalid as error:
            what = f"{self.operator} over columns of both streams gives a number beyond {self.type}"
            hint = "cast an operand to a wider type"
            raise ThetastreamError("ARITHMETIC_OVERFLOW", f"{what}; {hint}") from error

    def columns(self) -> Iterator[SideColumn]:
        for operand in self.operands:
            yield from operand.columns()


def _decide(operator: str, values: Sequence[pa.Array]) -> pa.Array:
    """Evaluate a condition. Compared operands may be integers and decimals of different widths."""
    if operator == NOT:
        return pc.invert(values[0])
    if operator in (AND, OR):
        return reduce(pc.and_kleene if operator == AND else pc.or_kleene, values)
    left, right = values
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        left, right = _make_decimal(left), _make_decimal(right)
    compared = (pc.equal if operator == EQUAL else pc.less)(left, right)
    if not pa.types.is_floating(left.type):  # The planner gives both operands one type if one is floating.
        return compared
    # In Spark, NaN equals NaN and is greater than every other number. In Arrow, both comparisons with NaN are
    # false.
    left_is_nan, right_is_nan = pc.is_nan(left), pc.is_nan(right)
    if operator == LESS:
        left_is_nan = pc.invert(left_is_nan)
    return pc.or_(compared, pc.and_(left_is_nan, right_is_nan))


def _make_decimal(values: pa.Array) -> pa.Array:
    """Convert integers to the decimals as which Spark combines them with decimals."""
    digits = _DIGITS.get(values.type)
    return values if digits is None else values.cast(pa.decimal128(digits, 0))


def list_columns(operands: Sequence[Operand], side: Side) -> list[str]:
    """List the columns of one side that operands read."""
    return [column.name for operand in operands for column in operand.columns() if column.side is side]
