"""Rewrites a comparison of a measure with a constant: m(f(l), g(r)) OP c.

The measures are those of ``thetastream.index.measures``. Spark compares the result, a FLOAT, with the
constant in their common type. Each FLOAT is a DOUBLE too, so units compare in double precision.
"""

import math

from thetastream.conditions import Comparison
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED
from thetastream.conditions.tokens import read_call
from thetastream.core.measure import MeasureLimit
from thetastream.index.measures import REGISTRY
from thetastream.lowering.conjunct import Conjunct, Measured
from thetastream.lowering.query import Resolver


def rewrite_measure(conjunct: Conjunct, comparison: Comparison) -> bool:
    """Rewrite ``m(f, g) OP c``; return whether the comparison has this form."""
    aliases, resolver = conjunct.query.aliases, conjunct.resolver
    call, op, other = comparison.f, comparison.op, comparison.g
    if find_references(other, aliases):
        call, op, other = other, FLIPPED[op], call
    name, arguments = read_call(call) or ("", [])
    measure = REGISTRY.get(name.lower())
    if measure is None or len(arguments) != 2 or op not in ("<", "<=", ">", ">="):
        return False
    f, g = arguments
    if find_references(f, aliases) == (aliases[1],):
        f, g = g, f
    if find_references(f, aliases) != (aliases[0],) or find_references(g, aliases) != (aliases[1],):
        return False
    types = [resolver.type_of(phrase.text, (alias,)) for phrase, alias in zip((f, g), aliases, strict=True)]
    limit = _find_limit(call.text, other.text, conjunct)
    if types != [measure.argument_type] * 2 or limit is None or not _sums_as_units(resolver):
        return False
    for keys, phrase in zip(conjunct.out.keys, (f, g), strict=True):
        keys.add_values(phrase)
    conjunct.out.measured.append(Measured(f, g, MeasureLimit(measure, op, limit)))
    conjunct.add_note("measure", f"units compute {measure.name} as Spark does")
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
