"""Reads measures, and rewrites a comparison of a measure with a constant: m(f(l), g(r)) OP c.

The measures are those of ``thetastream.index.measures``. Spark compares the result, a FLOAT, with the
constant in their common type. Each FLOAT is a DOUBLE too, so units compare in double precision.
"""

import math
from typing import NamedTuple

from thetastream.conditions import Comparison, Phrase
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED
from thetastream.conditions.tokens import read_call
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
    name, arguments = read_call(phrase) or ("", [])
    measure = REGISTRY.get(name.lower())
    if measure is None or len(arguments) != 2:
        return None
    f, g = arguments
    if find_references(f, query.aliases) == (query.aliases[1],):
        f, g = g, f
    named = [find_references(argument, query.aliases) for argument in (f, g)]
    if named != [(alias,) for alias in query.aliases]:
        return None
    types = [resolver.type_of(one.text, alias) for one, alias in zip((f, g), named, strict=True)]
    problem = None
    if types != [measure.argument_type] * 2:
        found = " and ".join(str(type_).upper() for type_ in types)
        problem = f"{measure.name} takes two values of type {measure.argument_type.upper()}, not {found}"
    elif not _sums_as_units(resolver):
        problem = f"this version of Spark computes {measure.name} in single precision"
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
    if common not in ("float", "double"):
        return None
    constant = conjunct.resolver.constant(f"CAST(CAST(({limit}) AS {common}) AS DOUBLE)")
    if constant is None or constant.value is None or math.isnan(constant.value):
        return None
    return float(constant.value)


def _sums_as_units(resolver: Resolver) -> bool:
    """Whether this version of Spark sums products in double precision, as units do. Spark 4.2 does not."""
    large, one = (f"array({', '.join(found)})" for found in (("16777216F", "1F", "1F"), ("1F",) * 3))
    constant = resolver.constant(f"vector_inner_product({large}, {one})")
    return constant is not None and constant.value == 16777218.0
