"""Rewrites a bound on a distance or on a difference: abs(f - g) <= c, f(l) - g(r) OP c, g(r) - f(l) OP c.

    abs of numbers               two key columns that are at most c apart
    abs of times                 two key columns of times; a difference of instants is elapsed time
    integers, decimals, dates    f OP g + c over two key columns
    timestamps                   the same, in elapsed time

Each function returns None, or the reason why the conjunct must be evaluated again behind the join.
"""

import math
from collections.abc import Callable
from fractions import Fraction

from thetastream.conditions import Comparison, Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED, find_last_additive
from thetastream.core.condition import Domain, ExactBand
from thetastream.core.spans import LONGEST_US, to_micros
from thetastream.core.spark_types import is_day_time, is_floating, is_integral, parse_decimal
from thetastream.lowering.conjunct import Band, Conjunct, Ordering, TypedPair
from thetastream.lowering.domains import find_domain, find_family
from thetastream.lowering.event_time import DAY_US
from thetastream.lowering.query import Constant

MAX_DOUBLE_INT = 1 << 24
"""Float and double represent integers up to here exactly, so smaller bounds compare exactly in any type."""
_ROUND: dict[str, Callable[[Fraction], int]] = {
    "<=": math.floor,
    ">=": math.ceil,
    "<": lambda units: math.ceil(units) - 1,
    ">": lambda units: math.floor(units) + 1,
}
"""The inclusive bound of a whole number, as in: x < 5.5 is x <= 5."""


def rewrite_band(conjunct: Conjunct, typed: TypedPair, op: str, limit: Phrase) -> str | None:
    """Rewrite ``abs(f - g) <= limit``, or the same with ``<``."""
    if find_references(limit, conjunct.query.aliases):
        return "the limit of abs is not a constant"
    constant = conjunct.resolver.constant(limit.text)
    if constant is None or constant.value is None:
        return "the limit of abs has no value the index can use"
    if typed.common is None:
        return f"Spark subtracts {typed.g_type} from {typed.f_type} by rules of its own"
    if find_family(typed.common) == "numeric":
        return _rewrite_numeric_band(conjunct, typed, op == "<", constant)
    is_instant = typed.common == "timestamp"
    if (typed.f_type == typed.g_type or is_instant) and is_day_time(constant.type):
        return _rewrite_interval_band(conjunct, typed, op == "<", to_micros(constant.value))
    return f"abs over {typed.common} is not indexed"


def _rewrite_numeric_band(
    conjunct: Conjunct, typed: TypedPair, is_strict: bool, constant: Constant
) -> str | None:
    common, domain = typed.common, find_domain(typed.common or "")
    assert common is not None
    if find_family(constant.type) != "numeric" or domain is None or domain is Domain.WIDE_DECIMAL:
        return f"abs over {common} with a limit of type {constant.type} is not indexed"
    if is_integral(common) and not conjunct.resolver.is_ansi:
        # Outside ANSI mode 2147483647 - -2147483648 is -1, so the ends of the type are neighbours.
        return f"differences of {common} wrap around outside ANSI mode; BETWEEN is indexed"
    limit = constant.value
    if not math.isfinite(limit) or limit < 0:
        return "the limit of abs is negative or not finite"
    if domain is Domain.FLOAT:
        # A difference is rounded to the nearest float. The band is widened by more than this error.
        delta = float(limit) * (1 + 2.0**-22) if common == "float" else float(limit)
        left, right = _add_band(
            conjunct, typed, domain, math.nextafter(delta + (1e-44 if common == "float" else 0.0), math.inf)
        )
        exact = ExactBand(float(limit), is_strict, common == "float")
        if limit < MAX_DOUBLE_INT and conjunct.add_check(left, right, exact):
            return None
        return "floating-point differences are rounded"
    scale = (parse_decimal(common) or (0, 0))[1]
    units = Fraction(limit) * 10**scale
    if constant.type in ("float", "double"):
        if units >= MAX_DOUBLE_INT:
            return f"Spark compares {common} with {constant.type} in floating point"
        if not is_integral(common):
            _add_band(conjunct, typed, domain, math.floor(units) + 1)
            return "decimals are compared with the limit in floating point"
    return _add_whole_band(conjunct, typed, domain, units, is_strict)


def _rewrite_interval_band(
    conjunct: Conjunct, typed: TypedPair, is_strict: bool, limit_us: int
) -> str | None:
    common = typed.common
    if limit_us > LONGEST_US:
        return "the limit of abs is longer than 10,000 years"
    if common == "date":
        difference = conjunct.resolver.type_of(f"({typed.f.text}) - ({typed.g.text})", conjunct.query.aliases)
        if difference is None or not is_day_time(difference):
            return "dates subtract to something other than an interval"
        return _add_whole_band(conjunct, typed, Domain.INT, Fraction(limit_us, DAY_US), is_strict)
    if common in ("timestamp", "timestamp_ntz") or is_day_time(common or ""):
        return _add_whole_band(conjunct, typed, Domain.INT, Fraction(limit_us), is_strict)
    return f"abs over {common} is not indexed"


def _add_whole_band(
    conjunct: Conjunct, typed: TypedPair, domain: Domain, units: Fraction, is_strict: bool
) -> str | None:
    whole = math.floor(units)
    if is_strict and whole == units:
        whole -= 1
    if whole < 0:
        return "the limit of abs is never met"
    _add_band(conjunct, typed, domain, whole)
    return None


def _add_band(conjunct: Conjunct, typed: TypedPair, domain: Domain, delta: int | float) -> tuple[int, int]:
    left, right = conjunct.add_keys(typed, domain)
    conjunct.out.bands.append(Band(left, right, delta, conjunct.text))
    conjunct.add_note("key", f"a band of {delta} as {typed.common} ({domain.value} domain)")
    return left, right


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
