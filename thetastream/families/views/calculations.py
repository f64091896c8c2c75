"""Reads an argument over both streams as a calculation that units do for each match.

    r.price * s.amount - r.fee
    operator -                       units
        operator * : r.price, s.amount
        r.fee                        a column that Spark computes from one stream

The condition of a FILTER is split in the same way (``fold_conditions``). Only operators whose value and type
in Arrow are those of Spark are read. Everything else is not folded.

Reads conditions over both streams, which units evaluate for each match.

    r.price > s.bid AND (s.x BETWEEN r.lo AND r.hi OR r.k = 'a')
    and  <  : s.bid, r.price                     units
         or  and  not  <  : s.x, r.lo            x >= lo is NOT (x < lo)
                  not  <  : r.hi, s.x            x <= hi is NOT (hi < x)
             r.k = 'a'                           a column that Spark computes from one stream

Units compare numbers, and texts, dates and timestamps of one type.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from thetastream.aggregates import NotFoldable
from thetastream.aggregates.operands import (
    ABSOLUTE,
    ADD,
    AND,
    DIGITS,
    DOUBLE,
    EQUAL,
    LESS,
    MULTIPLY,
    NOT,
    OR,
    SUBTRACT,
    WHERE,
)
from thetastream.conditions import Comparison, Phrase, parse, split_comparisons, split_conjuncts
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import find_last_additive
from thetastream.core.spark_types import DATETIME, is_floating, is_integral, parse_decimal
from thetastream.families.views.expressions import Expressions, find_closing
from thetastream.families.views.folding import Calculated, Computed
from thetastream.lowering.domains import find_family, write_cast

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


MOST_DIGITS = 38
"""The digits of the widest decimal of Spark."""


class FilterCondition(NamedTuple):
    """An operator of ``thetastream.aggregates.operands.CONDITIONS``, and its operands."""

    operator: str
    operands: tuple[Phrase, ...]


def read_condition(phrase: Phrase) -> FilterCondition | None:
    """Read the outermost operator of a condition; None if units have no such operator.

    >>> found = read_condition(parse("r.x <= s.y"))
    >>> found.operator, [operand.text for operand in found.operands]
    ('not', ['(s.y) < (r.x)'])
    >>> found = read_condition(parse("r.x < s.y AND NOT r.k"))
    >>> found.operator, [operand.text for operand in found.operands]
    ('and', ['r.x < s.y', 'NOT r.k'])
    """
    phrase = phrase.bare()
    if "XOR" in phrase.kinds:
        return None
    if "OR" in phrase.kinds:
        at = next(n for n in phrase.top if phrase.tokens[n].kind == "OR")
        return _require_operands(FilterCondition(OR, (phrase.slice(0, at), phrase.slice(at + 1))))
    parts = split_conjuncts(phrase)
    if len(parts) > 1:
        return FilterCondition(AND, tuple(parts))
    if phrase.kinds[:1] == ("NOT",):
        return _require_operands(FilterCondition(NOT, (phrase.slice(1),)))
    if phrase.kinds.count("NEQ") == 1:
        at = next(n for n in phrase.top if phrase.tokens[n].kind == "NEQ")
        equality = parse(f"{phrase.slice(0, at).text} = {phrase.slice(at + 1).text}")
        return FilterCondition(NOT, (equality,)) if split_comparisons(equality) else None
    comparisons = split_comparisons(phrase)
    if len(comparisons) == 2:  # BETWEEN
        return FilterCondition(AND, tuple(parse(f"({c.f.text}) {c.op} ({c.g.text})") for c in comparisons))
    return _read_comparison(comparisons[0]) if comparisons else None


def _require_operands(condition: FilterCondition) -> FilterCondition | None:
    """Return the condition; None if an operand is empty, as in ``r.x < s.y OR``."""
    return condition if all(condition.operands) else None


def _read_comparison(comparison: Comparison) -> FilterCondition:
    f, op, g, limit = comparison.f, comparison.op, comparison.g, comparison.limit
    if limit is not None:
        f, g = parse(f"abs(({f.text}) - ({g.text}))"), limit
    if op == "=":
        return FilterCondition(EQUAL, (f, g))
    if op[0] == ">":  # f > g is g < f
        f, op, g = g, op.replace(">", "<"), f
    if op == "<":
        return FilterCondition(LESS, (f, g))
    return FilterCondition(NOT, (parse(f"({g.text}) < ({f.text})"),))  # f <= g is NOT (g < f)


def find_compared_type(f: Phrase, g: Phrase, find_type: Callable[[Phrase], str]) -> str:
    """Find the type in which Spark compares two expressions.

    Parameters
    ----------
    find_type : callable
        It returns Spark's type of an expression.

    Raises
    ------
    NotFoldable
        If Arrow does not compare values of these types as Spark does.
    """
    types = find_type(f), find_type(g)
    if types[0] == types[1] and types[0] in DATETIME | {"string"}:
        return types[0]
    if find_family(types[0]) == find_family(types[1]) == "numeric":
        common = find_type(parse(f"coalesce(({f.text}), ({g.text}))"))
        # A decimal that has all digits of both operands. Spark rounds if it would have more than 38 digits.
        digits = [parse_decimal(type_) or (DIGITS.get(type_, 0), 0) for type_ in types]
        scale = max(scale for _, scale in digits)
        widest = max(precision - scale for precision, scale in digits) + scale
        is_exact = parse_decimal(common) == (widest, scale) and widest <= MOST_DIGITS
        if is_integral(common) or is_floating(common) or is_exact:
            return common
    raise NotFoldable(f"units do not compare {f.text} with {g.text}, of {types[0]} and {types[1]}")
