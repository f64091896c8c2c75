"""Reads measures, and rewrites conjuncts that units evaluate by a measure:

    m(f(l), g(r)) OP c                  a comparison with a constant
    m(f(l), g(r)) OP h(l)               a comparison with a threshold, an expression of one side
    c - m(f(l), g(r)) OP ...            the same with a constant minus a measure
    bit_count(f(l) ^ g(r)) + ... OP k   the same with a sum over several integers
    levenshtein(f(l), g(r), k) >= 0     levenshtein(f, g) <= k
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
from thetastream.conditions.phrases import FLIPPED, canonicalize, find_last_additive, split_sum
from thetastream.conditions.tokens import read_call, read_cast
from thetastream.core.measure import MeasureLimit, PairMeasure
from thetastream.core.row_limit import RowLimit
from thetastream.core.sides import Side
from thetastream.core.spark_types import DATETIME, FLOATING, INTEGRAL, is_floating, is_integral
from thetastream.index.measures import REGISTRY
from thetastream.index.measures.bits import Hamming, HammingSum
from thetastream.index.measures.ranges import Difference, Outside
from thetastream.index.measures.subtraction import Subtraction
from thetastream.lowering.conjunct import Conjunct, Measured
from thetastream.lowering.domains import find_domain, write_cast
from thetastream.lowering.query import Query, Resolver

_NUMBERS = ("int", "bigint", "float", "double")
"""Types in which units compare as Spark does."""
_EXACT_CASTS = (("float", "double"), ("int", "double"), ("int", "bigint"))
"""Casts that keep every value."""


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
    if measure.widens and left != right:
        common = resolver.type_of(f"coalesce(({f.text}), ({g.text}))", query.aliases) or ""
        if measure.takes(common, common):
            f, g = (parse(write_cast(*one, common)) for one in ((f.text, left), (g.text, right)))
            left = right = common
    if not measure.takes(left, right):
        problem = f"{measure.name} takes {measure.arguments}, not {left.upper()} and {right.upper()}"
    elif not _computes_as_units(measure, resolver):
        problem = f"this version or session of Spark computes {measure.name} in another way than units"
    return MeasureCall(measure, (f, g), problem)


def rewrite_measure(conjunct: Conjunct, comparison: Comparison) -> bool:
    """Rewrite ``m(f, g) OP c``, where c is a constant or reads one stream; return whether the comparison has
    this form."""
    query, resolver = conjunct.query, conjunct.resolver
    call, op, other = _put_call_first(_read_bounded_edits(comparison, resolver), query.aliases)
    named = find_references(other, query.aliases)
    if len(find_references(call, query.aliases)) < 2 or len(named) > 1 or op not in ("<", "<=", ">", ">="):
        return False
    found = read_number(call, query, resolver)
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


def read_number(phrase: Phrase, query: Query, resolver: Resolver) -> MeasureCall | None:
    """Read a measure, a sum of ``bit_count``, a constant minus one of them, or a cast of one of them that
    keeps its value."""
    cast = read_cast(phrase.bare())
    if cast is not None:
        types = tuple(resolver.type_of(one.text, query.aliases) for one in (cast[0], phrase))
        return read_number(cast[0], query, resolver) if types in _EXACT_CASTS else None
    return (
        read_measure(phrase, query, resolver)
        or _read_sum(phrase, query, resolver)
        or _read_subtraction(phrase, query, resolver)
    )


def _read_sum(phrase: Phrase, query: Query, resolver: Resolver) -> MeasureCall | None:
    """Read ``bit_count(f ^ g) + bit_count(h ^ i) + ...``."""
    terms = [read_measure(term, query, resolver) for term in split_sum(phrase)]
    found = [term for term in terms if term is not None and term.measure == Hamming() and not term.problem]
    if len(found) < len(terms) or len(terms) < 2:
        return None
    left, right = (
        parse(f"array({', '.join(f'CAST(({term.arguments[n].text}) AS BIGINT)' for term in found)})")
        for n in (0, 1)
    )
    return MeasureCall(HammingSum(), (left, right), None)


def _read_subtraction(phrase: Phrase, query: Query, resolver: Resolver) -> MeasureCall | None:
    """Read ``c - m(f, g)`` with a constant c."""
    phrase = phrase.bare()
    sign = find_last_additive(phrase)
    if sign is None or phrase.tokens[sign].kind != "DASH":
        return None
    minuend, call = phrase.slice(0, sign), phrase.slice(sign + 1)
    found = None if find_references(minuend, query.aliases) else read_number(call, query, resolver)
    type_ = None if found is None else resolver.type_of(phrase.text, query.aliases)
    if found is None or found.measure.is_test or type_ not in _NUMBERS:
        return None
    if type_ == "bigint" and found.measure == Difference():
        return None  # A difference of 64 bits is computed as a double, and Spark subtracts in whole numbers.
    constant = resolver.constant(f"CAST(CAST(({minuend.text}) AS {type_}) AS DOUBLE)")
    if constant is None or constant.value is None:
        return None
    # Differences of whole numbers must not leave their type.
    if not math.isfinite(constant.value) or (is_integral(type_) and abs(constant.value) >= 1 << 30):
        return None
    return found._replace(measure=Subtraction(found.measure, constant.value, type_ == "float"))


def _read_bounded_edits(comparison: Comparison, resolver: Resolver) -> Comparison:
    """Read ``levenshtein(f, g, k) >= 0`` as ``levenshtein(f, g) <= k``.

    With three arguments, it is -1 if the distance is more than k.
    """
    for one, op, other in (
        (comparison.f, comparison.op, comparison.g),
        (comparison.g, FLIPPED[comparison.op], comparison.f),
    ):
        call = None if comparison.limit is not None else read_call(one.bare())
        if call is None or call[0] != "LEVENSHTEIN" or len(call[1]) != 3:
            continue
        limit = resolver.constant(other.text)
        if limit is not None and (op, limit.value) in ((">=", 0), (">", -1)):
            f, g, k = call[1]
            return Comparison(
                parse(f"levenshtein({f.text}, {g.text})"), "<=", parse(f"CAST(({k.text}) AS INT)")
            )
    return comparison


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
    if common not in _NUMBERS:
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
    if type_ is None or common not in _NUMBERS:
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
