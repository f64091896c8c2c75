"""Reads an argument over both streams as a calculation that units do for each match.

    r.price * s.amount - r.fee
    operator -                       units
        operator * : r.price, s.amount
        r.fee                        a column that Spark computes from one stream

The condition of a FILTER is split in the same way (``fold_conditions``). Only operators whose value and type
in Arrow are those of Spark are read. Everything else is not folded.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from thetastream.aggregate import NotFoldable
from thetastream.aggregate.operands import (
    ABSOLUTE,
    ADD,
    DIGITS,
    DOUBLE,
    EQUAL,
    LESS,
    MULTIPLY,
    SUBTRACT,
    WHERE,
)
from thetastream.core.spark_types import is_floating, is_integral, parse_decimal
from thetastream.plan.domains import write_cast
from thetastream.plan.fold_conditions import find_compared_type, read_condition
from thetastream.plan.fold_expressions import Expressions, find_closing
from thetastream.plan.folding import Calculated, Computed
from thetastream.predicate import Phrase, parse
from thetastream.predicate.names import find_references
from thetastream.predicate.split import find_last_additive

_SIGNS = {"PLUS": ADD, "DASH": SUBTRACT}
_FACTORS = {"STAR", "SLASH", "MOD", "DIV"}
_PLAIN = {"VAR", "DOT", "FIELD", "IDENTIFIER", "NUMBER", "L_PAREN", "R_PAREN", "DASH", "PLUS", "STAR"}
"""The kinds of tokens on top of a sum or a product. Any other token may bind differently."""


class _Operation(NamedTuple):
    operator: str
    operands: tuple[Phrase, ...]


class Calculations:
    """Plans the columns that measures read, of one stream or of both.

    Parameters
    ----------
    expressions : Expressions
        The expressions of the statement.
    compute : callable
        It returns the column that a stream computes: (alias, SQL) to Computed.
    """

    def __init__(self, expressions: Expressions, compute: Callable[[str, str], Computed]) -> None:
        self._expressions = expressions
        self._compute = compute

    def plan(self, text: str) -> Computed | Calculated:
        """Plan the column for SQL over both streams.

        Raises
        ------
        NotFoldable
            If units cannot calculate it as Spark does.
        """
        return self._plan(parse(text))

    def _plan(self, phrase: Phrase) -> Computed | Calculated:
        if len(find_references(phrase, self._expressions.aliases)) < 2:
            return self._compute(self._expressions.find_stream(phrase), phrase.text)
        condition = read_condition(phrase)
        if condition is not None:
            return self._plan_condition(phrase, condition.operator, condition.operands)
        operation = _read_operation(phrase.bare())
        if operation is None:
            raise NotFoldable(f"{phrase.text} reads both streams in a way that units do not calculate")
        type_ = self._find_type(phrase)
        read = [self._find_type(operand) for operand in operation.operands]
        _check_types(phrase, operation.operator, read, type_)
        planned = tuple(self._plan(operand) for operand in operation.operands)
        return Calculated(operation.operator, planned, phrase.text, type_, self._expressions.resolver.is_ansi)

    def _plan_condition(self, phrase: Phrase, operator: str, operands: Sequence[Phrase]) -> Calculated:
        if operator in (EQUAL, LESS):
            left, right = operands
            type_ = find_compared_type(left, right, self._find_type)
            planned = [self._plan_compared(left, type_), self._plan_compared(right, type_)]
        else:
            planned = [self._plan(operand) for operand in operands]
        return Calculated(operator, tuple(planned), phrase.text, "boolean", is_checked=False)

    def _plan_compared(self, phrase: Phrase, type_: str) -> Computed | Calculated:
        """Plan an operand of a comparison, in the type in which Spark compares."""
        found = self._find_type(phrase)
        if len(find_references(phrase, self._expressions.aliases)) < 2:
            return self._compute(self._expressions.find_stream(phrase), write_cast(phrase.text, found, type_))
        planned = self._plan(phrase)
        if found == type_ or not is_floating(type_):
            return planned  # Arrow widens integers and decimals, and their values stay the same
        if type_ == "double" and (is_integral(found) or is_floating(found)):
            return Calculated(DOUBLE, (planned,), phrase.text, type_, is_checked=False)
        raise NotFoldable(f"units do not make a {type_} of {phrase.text} of type {found}")

    def _find_type(self, phrase: Phrase) -> str:
        type_ = self._expressions.resolver.type_of(phrase.text, self._expressions.aliases)
        if type_ is None:
            raise NotFoldable(f"Spark finds no type for {phrase.text}")
        return type_


def _read_operation(phrase: Phrase) -> _Operation | None:
    """Read the outermost operator of a phrase; None if units have no such operator.

    >>> found = _read_operation(parse("r.x * 2 - abs(s.y) * r.z"))
    >>> found.operator, [operand.text for operand in found.operands]
    ('-', ['r.x * 2', 'abs(s.y) * r.z'])
    """
    tokens, first = phrase.tokens, phrase.tokens[0].keyword
    if first == "CASE" and len(phrase.top) == 2:
        return _read_filter(phrase)
    if len(tokens) > 3 and tokens[1].text == "(" and find_closing(tokens, 1) == len(tokens) - 1:
        inside = phrase.slice(2, -1)
        if first == "ABS":
            return _Operation(ABSOLUTE, (inside,))
        if first == "CAST" and [token.keyword for token in inside.tokens[-2:]] == ["AS", "DOUBLE"]:
            return _Operation(DOUBLE, (inside.slice(0, -2),))
        return None
    kinds = set(phrase.kinds)
    sign = find_last_additive(phrase) if kinds <= _PLAIN | _FACTORS else None
    if sign is not None:
        return _Operation(_SIGNS[tokens[sign].kind], (phrase.slice(0, sign), phrase.slice(sign + 1)))
    factors = [n for n in phrase.top if tokens[n].kind in _FACTORS]
    if not factors or not kinds <= _PLAIN | _FACTORS or tokens[factors[-1]].kind != "STAR":
        return None
    return _Operation(MULTIPLY, (phrase.slice(0, factors[-1]), phrase.slice(factors[-1] + 1)))


def _read_filter(phrase: Phrase) -> _Operation | None:
    """Read ``CASE WHEN (condition) THEN value END``, as which an aggregate's FILTER is written."""
    inner = phrase.slice(1, -1)
    words = {inner.tokens[n].keyword: n for n in inner.top}
    names = [inner.tokens[n].keyword for n in inner.top]
    if names.count("WHEN") != 1 or names.count("THEN") != 1 or "ELSE" in names or words["WHEN"] != 0:
        return None
    then = words["THEN"]
    return _Operation(WHERE, (inner.slice(1, then), inner.slice(then + 1)))


def _check_types(phrase: Phrase, operator: str, operands: Sequence[str], result: str) -> None:
    """Raise unless Arrow's operator gives a result of Spark's type from operands of these types."""
    is_number = [is_integral(type_) or is_floating(type_) for type_ in (*operands, result)]
    if operator == WHERE or all(is_number):
        return
    digits = [parse_decimal(type_) or (DIGITS.get(type_, 0), 0) for type_ in operands]
    if operator == DOUBLE or not all(precision for precision, _ in digits):
        named = " and ".join(dict.fromkeys(operands))
        raise NotFoldable(f"units do not calculate {phrase.text} of {named}")
    if parse_decimal(result) != _find_digits(operator, digits):
        raise NotFoldable(f"units do not calculate {phrase.text} of type {result}")


def _find_digits(operator: str, digits: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return precision and scale of Arrow's result, which is Spark's if it has at most 38 digits."""
    if operator == ABSOLUTE:
        return digits[0]
    (left, left_scale), (right, right_scale) = digits
    if operator == MULTIPLY:
        return left + right + 1, left_scale + right_scale
    scale = max(left_scale, right_scale)
    return max(left - left_scale, right - right_scale) + scale + 1, scale
