"""Reads conditions over both streams, which units evaluate for each match.

    r.price > s.bid AND (s.x BETWEEN r.lo AND r.hi OR r.k = 'a')
    and  <  : s.bid, r.price                     units
         or  and  not  <  : s.x, r.lo            x >= lo is NOT (x < lo)
                  not  <  : r.hi, s.x            x <= hi is NOT (hi < x)
             r.k = 'a'                           a column that Spark computes from one stream

Units compare numbers, and texts, dates and timestamps of one type.
"""

from collections.abc import Callable
from typing import NamedTuple

from thetastream.aggregate import NotFoldable
from thetastream.aggregate.operands import AND, DIGITS, EQUAL, LESS, NOT, OR
from thetastream.core.spark_types import DATETIME, is_floating, is_integral, parse_decimal
from thetastream.plan.domains import find_family
from thetastream.predicate import Comparison, Phrase, parse, split_comparisons, split_conjuncts

MOST_DIGITS = 38
"""The digits of the widest decimal of Spark."""


class FilterCondition(NamedTuple):
    """An operator of ``thetastream.aggregate.operands.CONDITIONS``, and its operands."""

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
