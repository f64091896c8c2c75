"""Reads measures, and rewrites conjuncts that units evaluate by a measure:

    m(f(l), g(r)) OP c                  a comparison with a constant
    m(f(l), g(r)) OP h(l)               a comparison with a threshold, an expression of one side
    m(f(l), g(r)), NOT m(f(l), g(r))    a measure that is a boolean
    f(l) NOT BETWEEN g(r) AND h(r)      also NOT (... AND ...), and f(l) < g(r) OR f(l) > h(r)

The measures are those of ``thetastream.index.measures``. Spark compares the result, a FLOAT or an INT, with
the constant in their common type. A DOUBLE has each value of both, so units compare in double precision.
"""

import math
from typing import NamedTuple

from thetastream.conditions import Comparison, Phrase, find_negated_pair, parse, strip_not
from thetastream.conditions.forms import match_form
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED, canonicalize
from thetastream.core.measure import MeasureLimit, PairMeasure
from thetastream.core.row_limit import RowLimit
from thetastream.core.sides import Side
from thetastream.core.spark_types import DATETIME, FLOATING, INTEGRAL, is_floating
from thetastream.index.measures import REGISTRY
from thetastream.index.measures.ranges import Outside
from thetastream.lowering.conjunct import Conjunct, Measured
from thetastream.lowering.domains import find_domain
from thetastream.lowering.query import Query, Resolver


class MeasureCall(NamedTuple):
    """A call of a measure whose arguments read a left and a right stream."""

    measure: PairMeasure
    arguments: tuple[Phrase, Phrase]
    """The left and the right argument."""
    problem: str | None
    """Why units do not compute it; None if they do."""


def read_measure(phrase: Phrase, query: Query, resolver: Resolver) -> MeasureCall | None:
    """Read ``m(f, g)``; return None if it is no measure of an expression of each stream."""
    for measure in REGISTRY.values():
        for form in measure.forms:
            arguments = match_form(phrase, form)
            if arguments is not None:
                return _check_call(measure, arguments, query, resolver)
    return None


def _check_call(
    measure: PairMeasure, arguments: tuple[Phrase, Phrase], query: Query, resolver: Resolver
) -> MeasureCall | None:
    f, g = (argument.bare() for argument in arguments)
    if find_references(f, query.aliases) == (query.aliases[1],):
        f, g, measure = g, f, measure.mirrored
    named = [find_references(argument, query.aliases) for argument in (f, g)]
    if named != [(alias,) for alias in query.aliases]:
        return None
    left, right = (str(resolver.type_of(one.text, alias)) for one, alias in zip((f, g), named, strict=True))
    problem = None
    if not measure.takes(left, right):
        problem = f"{measure.name} takes {measure.arguments}, not {left.upper()} and {right.upper()}"
    elif not _computes_as_units(measure, resolver):
        problem = f"this version or session of Spark computes {measure.name} in another way than units"
    return MeasureCall(measure, (f, g), problem)


def rewrite_measure(conjunct: Conjunct, comparison: Comparison) -> bool:
    """Rewrite ``m(f, g) OP c``, where c is a constant or reads one stream; return whether the comparison has
    this form."""
    query, resolver = conjunct.query, conjunct.resolver
    call, op, other = _put_call_first(comparison, query.aliases)
    named = find_references(other, query.aliases)
    if len(find_references(call, query.aliases)) < 2 or len(named) > 1 or op not in ("<", "<=", ">", ">="):
        return False
    found = read_measure(call, query, resolver)
    if found is None or found.problem is not None or found.measure.is_test:
        return False
    if not named:
        value = _find_limit(call.text, other.text, conjunct)
        if value is not None:
            _add_measured(conjunct, found.arguments, MeasureLimit(found.measure, op, value))
        return value is not None
    threshold = _find_threshold(call.text, other.text, named[0], conjunct)
    if threshold is not None:
        side = Side(query.aliases.index(named[0]))
        thresholds = (threshold, None) if side is Side.LEFT else (None, threshold)
        _add_measured(conjunct, found.arguments, RowLimit(found.measure, op, side), thresholds)
    return threshold is not None


def _put_call_first(comparison: Comparison, aliases: tuple[str, ...]) -> tuple[Phrase, str, Phrase]:
    """Return the operand that reads both streams, the operator and the other operand."""
    f, op, g = comparison.f, comparison.op, comparison.g
    if comparison.limit is not None:
        if find_references(comparison.limit, aliases):
            return parse(f"abs(({f.text}) - ({g.text}))"), op, comparison.limit
        return f, op, g  # with a constant, it is a band of keys
    return (f, op, g) if len(find_references(f, aliases)) > 1 else (g, FLIPPED[op], f)


def rewrite_test(conjunct: Conjunct) -> bool:
    """Rewrite a measure that is a boolean; return whether the conjunct has this form."""
    phrase, is_negated = strip_not(conjunct.phrase)
    found = read_measure(phrase, conjunct.query, conjunct.resolver)
    if found is None or found.problem is not None or not found.measure.is_test:
        return False
    limit = MeasureLimit(found.measure, "<=" if is_negated else ">=", 0.0 if is_negated else 1.0)
    _add_measured(conjunct, found.arguments, limit)
    return True


def rewrite_outside(conjunct: Conjunct) -> bool:
    """Rewrite a condition that a value lies outside of an interval; return whether the conjunct is one."""
    pair, aliases = find_negated_pair(conjunct.phrase), conjunct.query.aliases
    for value in () if not pair else (pair[0].f, pair[0].g):
        ends = [_find_end(one, value) for one in pair]
        low, high = (next((end for end in ends if end and end[0][0] == sign), None) for sign in "><")
        if low is None or high is None:
            continue
        excludes = low[0] == ">", high[0] == "<"
        named = [find_references(phrase, aliases) for phrase in (value, low[1], high[1])]
        if len(named[0]) != 1 or named[1] != named[2] or {*named[0], *named[1]} != {*aliases}:
            continue
        types = [
            conjunct.resolver.type_of(phrase.text, names)
            for phrase, names in zip((value, low[1], high[1]), named, strict=True)
        ]
        type_ = str(types[0])
        domain = find_domain(type_)
        is_dense = is_floating(type_) or type_ in DATETIME
        if {*types} != {type_} or domain is None or not domain.is_exact or (any(excludes) and not is_dense):
            continue
        arguments = [value, parse(f"array({low[1].text}, {high[1].text})")]
        if named[0] == (aliases[1],):
            arguments.reverse()
        limit = MeasureLimit(Outside(excludes), ">=", 1.0)
        _add_measured(conjunct, (arguments[0], arguments[1]), limit)
        return True
    return False


def _find_end(comparison: Comparison, value: Phrase) -> tuple[str, Phrase] | None:
    """Return the operator and the other operand of a comparison of a value; None if it compares another."""
    f, op, g = comparison.f, comparison.op, comparison.g
    for one, sign, other in ((f, op, g), (g, FLIPPED[op], f)):
        if comparison.limit is None and canonicalize(one.text) == canonicalize(value.text):
            return sign, other
    return None


def _add_measured(
    conjunct: Conjunct,
    arguments: tuple[Phrase, Phrase],
    limit: MeasureLimit | RowLimit,
    thresholds: tuple[Phrase | None, Phrase | None] = (None, None),
) -> None:
    why = f"units compute {limit.measure.name} as Spark does"
    parts = zip(conjunct.query.aliases, conjunct.out.keys, arguments, thresholds, strict=True)
    for alias, keys, phrase, threshold in parts:
        keys.add_values(phrase)
        if threshold is not None:
            keys.add_values(threshold)
            why += f"; each row of {alias} has its own threshold"
    if limit.is_far and thresholds == (None, None):
        why += "; pairs that an index proves to be far are results and are not computed"
    conjunct.out.measured.append(Measured(*arguments, limit, thresholds))
    conjunct.add_note("measure", why)


def _find_limit(value: str, limit: str, conjunct: Conjunct) -> float | None:
    """Return the limit in the type in which Spark compares; None if it is NULL, NaN or no number."""
    common = conjunct.resolver.type_of(f"coalesce(({value}), ({limit}))", conjunct.query.aliases)
    if common not in ("int", "bigint", "float", "double"):
        return None
    constant = conjunct.resolver.constant(f"CAST(CAST(({limit}) AS {common}) AS DOUBLE)")
    if constant is None or constant.value is None or math.isnan(constant.value):
        return None
    # A DOUBLE has all whole numbers up to here.
    is_exact = common in ("float", "double") or abs(constant.value) < 1 << 53
    return float(constant.value) if is_exact else None


def _find_threshold(value: str, threshold: str, alias: str, conjunct: Conjunct) -> Phrase | None:
    """Write a threshold as a number that units read as Spark compares it. Return None if units do not
    compare in its type, or if Catalyst resolves it only with both streams."""
    resolver = conjunct.resolver
    type_ = resolver.type_of(threshold, (alias,))
    common = resolver.type_of(f"coalesce(({value}), ({threshold}))", conjunct.query.aliases)
    if type_ is None or common not in ("int", "bigint", "float", "double"):
        return None
    if common == "bigint" and resolver.type_of(value, conjunct.query.aliases) == "bigint":
        # A DOUBLE does not have all of these values.
        return None
    is_read = type_ in INTEGRAL | FLOATING and (common != "float" or type_ == "float")
    return parse(threshold if is_read else f"CAST(CAST(({threshold}) AS {common}) AS DOUBLE)")


def _computes_as_units(measure: PairMeasure, resolver: Resolver) -> bool:
    """Whether this version and session of Spark computes a measure as units do."""
    if measure.proof is None:
        return True
    text, value = measure.proof
    constant = resolver.constant(text)
    return constant is not None and constant.value == value
