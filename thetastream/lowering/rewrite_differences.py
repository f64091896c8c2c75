"""Rewrites a comparison of a difference with a constant: f(l) - g(r) OP c, or g(r) - f(l) OP c.

    integers, decimals, dates    f OP g + c over two key columns
    timestamps                   the same, in elapsed time

The function returns None, or the reason why the conjunct must be evaluated again behind the join.
"""

import math
from collections.abc import Callable
from fractions import Fraction

from thetastream.conditions import Comparison, Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED, find_last_additive
from thetastream.core.condition import Domain
from thetastream.core.spans import LONGEST_US, to_micros
from thetastream.core.spark_types import is_day_time, is_floating, is_integral, parse_decimal
from thetastream.lowering.conjunct import Conjunct, Ordering, TypedPair
from thetastream.lowering.domains import find_domain, find_family
from thetastream.lowering.event_time import DAY_US
from thetastream.lowering.query import Constant

_ROUND: dict[str, Callable[[Fraction], int]] = {
    "<=": math.floor,
    ">=": math.ceil,
    "<": lambda units: math.ceil(units) - 1,
    ">": lambda units: math.floor(units) + 1,
}
"""The inclusive bound of a whole number, as in: x < 5.5 is x <= 5."""


def read_difference(comparison: Comparison, aliases: tuple[str, ...]) -> Comparison | None:
    """Read ``f - g OP c`` with f over the left stream. Return None if the comparison has another form."""
    difference, op, limit = comparison.f, comparison.op, comparison.g
    if not find_references(difference, aliases):
        difference, op, limit = limit, FLIPPED[op], difference
    minus = find_last_additive(difference.bare())
    if find_references(limit, aliases) or minus is None or op == "<=>":
        return None
    difference = difference.bare()
    if difference.tokens[minus].kind != "DASH":
        return None
    f, g = difference.slice(0, minus).bare(), difference.slice(minus + 1).bare()
    named = [find_references(phrase, aliases) for phrase in (f, g)]
    if [len(names) for names in named] != [1, 1] or named[0] == named[1]:
        return None
    return Comparison(f, op, g, limit)


def rewrite_difference(
    conjunct: Conjunct, typed: TypedPair, op: str, limit: Phrase, is_flipped: bool
) -> str | None:
    """Rewrite ``f - g OP limit``, or ``g - f OP limit`` if it is flipped, where f is of the left stream."""
    constant = conjunct.resolver.constant(limit.text)
    if constant is None or constant.value is None or typed.common is None:
        return "a difference is compared with a value that the index cannot use"
    units = _count_units(conjunct, typed.common, constant)
    if units is None:
        return f"differences of {typed.common} are not indexed"
    if is_flipped:
        units, op = -units, FLIPPED[op]
    if op == "=" and units.denominator != 1:
        return "the difference is never met"
    left, right = conjunct.add_keys(typed, find_domain(typed.common) or Domain.INT)
    for end in ("<=", ">=") if op == "=" else (op,):
        ordering = Ordering(left, end[0] + "=", right, _ROUND[end](units), conjunct.number, conjunct.text)
        conjunct.out.orderings.append(ordering)
    conjunct.add_note("key", f"a difference of {typed.common}")
    return None


def _count_units(conjunct: Conjunct, common: str, constant: Constant) -> Fraction | None:
    """Count the units of the keys in the limit. Return None if such differences are not exact in units."""
    if find_family(common) == "numeric":
        if find_family(constant.type) != "numeric" or is_floating(constant.type) or is_floating(common):
            return None
        if find_domain(common) is Domain.WIDE_DECIMAL or (
            is_integral(common) and not conjunct.resolver.is_ansi
        ):
            return None  # outside ANSI mode, differences of integers wrap around
        units = Fraction(constant.value) * 10 ** (parse_decimal(common) or (0, 0))[1]
        return units if abs(units) <= LONGEST_US else None
    if not is_day_time(constant.type) or find_family(common) != "datetime":
        return None
    micros = to_micros(constant.value)
    return None if abs(micros) > LONGEST_US else Fraction(micros, DAY_US if common == "date" else 1)
