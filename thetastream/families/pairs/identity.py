"""The identity of a query: the parts that a checkpoint keeps, so that another query cannot continue from it.

The parts have names that users know, because an error shows the name of a part and what the user wrote.
``thetastream.core.identity`` compares them. An index, an archive period, a cache folder and statistics are
not parts, because they do not change which tuples are stored.
"""

import json

from thetastream.conditions.phrases import canonicalize
from thetastream.core.identity import CONDITION, EQUAL, KIND, NARROWER, Part
from thetastream.engine.order import Order
from thetastream.lowering.identity import (
    MODEL,
    WINDOW,
    Parts,
    Reading,
    describe_count,
    describe_dimension,
    describe_equality,
    describe_inputs,
    identify_condition,
    identify_model,
    identify_streams,
    name_keys,
    name_predicate,
)
from thetastream.lowering.physical import PhysicalPlan
from thetastream.models.base import Model


def identify_two_streams(
    plan: PhysicalPlan,
    model: Model,
    reading: Reading,
    order: Order | None = None,
) -> Parts:
    """Return the identity of a join of two streams."""
    condition, sides = plan.condition, plan.condition.sides
    names = [name_keys(side, spec, reading) for side, spec in zip(plan.sides, sides, strict=True)]
    # They have the same meaning as conjuncts of the residual.
    unit_checks = [check for _, checks in plan.unit_checks for check in checks]
    meaning = {
        **describe_inputs(plan.sides, reading),
        "equalities": sorted(describe_equality(names, equality) for equality in condition.equalities),
        "dimensions": sorted(describe_dimension(names, dimension) for dimension in condition.dimensions),
        "same": sorted(condition.same),
        "predicates": sorted(
            name_predicate(predicate) for predicate in condition.predicates if predicate not in unit_checks
        ),
        "residual": sorted(canonicalize(text, reading.is_case_sensitive) for text in plan.residual),
    }
    parts = {
        **identify_streams(plan.sides, sides),
        CONDITION: identify_condition(meaning, plan.on),
        WINDOW: _identify_window(plan),
        MODEL: identify_model(model, reading),
    }
    if plan.versions is not None:
        rule, alias = plan.versions, plan.sides[1].alias
        words = [f"by {', '.join(rule.key)}"]
        words += [] if rule.sequence is None else [f"ordered by {rule.sequence}"]
        words += [] if rule.deleted is None else [f"deleted if {rule.deleted}"]
        counting = json.dumps([sorted(rule.key), rule.sequence, rule.deleted])
        parts[f"the versions of {alias!r}"] = Part(counting, ", ".join(words))
    if not plan.how.is_inner:
        kind = f"{plan.how.name}, early" if plan.how.is_early else plan.how.name
        parts[KIND] = Part(kind, kind)
    if order is not None:
        parts["the order of results"] = Part("ordered", "by arrival")
    return parts


def _identify_window(plan: PhysicalPlan) -> Part:
    window = plan.condition.window
    if plan.counts is not None:
        counts = zip(plan.counts, plan.sides, strict=True)
        words = " and ".join(describe_count(n, side) for n, side in counts)
        return Part(json.dumps([[-n, None] for n in plan.counts]), words, NARROWER)
    low = None if window is None or window.low is None else int(window.low.delta)
    high = None if window is None or window.high is None else int(window.high.delta)
    words = "the full history" if window is None else window.text
    # With a narrower window, tuples would have been decided before the query was started again.
    return Part(json.dumps([[low, high]]), words, NARROWER if plan.how.is_inner else EQUAL)
