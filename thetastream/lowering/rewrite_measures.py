"""Reads measures, and rewrites a comparison of a measure with a constant: m(f(l), g(r)) OP c.

The measures are those of ``thetastream.index.measures``. Spark compares the result, a FLOAT or an INT, with
the constant in their common type. A DOUBLE has each value of both, so units compare in double precision.
"""

import math
from typing import NamedTuple

from thetastream.conditions import Comparison, Phrase
from thetastream.conditions.forms import match_form
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED
from thetastream.core.measure import MeasureLimit, PairMeasure
from thetastream.index.measures import REGISTRY
from thetastream.lowering.conjunct import Conjunct, Measured
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
        f, g = g, f
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
    """Rewrite ``m(f, g) OP c``; return whether the comparison has this form."""
    call, op, other = comparison.f, comparison.op, comparison.g
    if find_references(other, conjunct.query.aliases):
        call, op, other = other, FLIPPED[op], call
    found = read_measure(call, conjunct.query, conjunct.resolver)
    if found is None or found.problem is not None or op not in ("<", "<=", ">", ">="):
        return False
    limit = _find_limit(call.text, other.text, conjunct)
    if limit is None:
        return False
    f, g = found.arguments
    for keys, phrase in zip(conjunct.out.keys, (f, g), strict=True):
        keys.add_values(phrase)
    conjunct.out.measured.append(Measured(f, g, MeasureLimit(found.measure, op, limit)))
    conjunct.add_note("measure", f"units compute {found.measure.name} as Spark does")
    return True


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


def _computes_as_units(measure: PairMeasure, resolver: Resolver) -> bool:
    """Whether this version and session of Spark computes a measure as units do."""
    if measure.proof is None:
        return True
    text, value = measure.proof
    constant = resolver.constant(text)
    return constant is not None and constant.value == value
