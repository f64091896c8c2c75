"""The parts of a query's identity that several families share."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.conditions.phrases import canonicalize
from thetastream.core.columns import SIGN
from thetastream.core.condition import TIME, Bound, Dimension, Equality, Key, SideSpec
from thetastream.core.identity import CHOSEN, COLUMNS, Part
from thetastream.lowering.physical import SidePlan
from thetastream.models.base import Model, keep_fixed

Parts = dict[str, Part]
"""The parts of a query by their names."""
WINDOW, MODEL = "the window", "the model"
EVENT_TIME, NO_COLUMN = "the event time of ", "no column"
"""Beginning of the names of parts that name the event time of a stream, and their text if it has none."""


@dataclass(frozen=True)
class Reading:
    """How the session reads a query and how its model came about."""

    is_case_sensitive: bool = False
    chosen_for: int | None = None
    """The number of shuffle partitions for which the planner chose the model. None means that the user named
    the model."""


def identify_model(model: Model, reading: Reading) -> Part:
    """Return the part that names the model."""
    kept = repr(keep_fixed(model))
    if reading.chosen_for is None:
        return Part(kept, kept)
    return Part(f"{reading.chosen_for}:{kept}", kept, CHOSEN)


def identify_settings(settings: dict[str, str]) -> Parts:
    """Return the parts for settings of the session that change the values of expressions."""
    return {name: Part(value, value) for name, value in settings.items()}


# Streams


def identify_streams(plans: Sequence[SidePlan], specs: Sequence[SideSpec]) -> Parts:
    """Return the columns and the event time of each stream."""
    parts = {}
    for plan, spec in zip(plans, specs, strict=True):
        columns = [f"{carried.field} {carried.type or carried.block_type}" for carried in plan.carried]
        parts[f"stream {plan.alias!r}"] = Part(json.dumps(columns), ", ".join(columns), COLUMNS)
        fields = {carried.block_column: carried.field for carried in plan.carried}
        time = NO_COLUMN if spec.time is None else fields.get(spec.time.column, spec.time.column)
        parts[f"{EVENT_TIME}{plan.alias!r}"] = Part(time, time)
        if plan.has_deletes:
            parts[f"the changes of {plan.alias!r}"] = Part("deletes", "inserts and deletes")
    return parts


def describe_inputs(plans: Sequence[SidePlan], reading: Reading) -> dict[str, Any]:
    """Return the filters of each stream, and its computed columns as they lie in blocks."""
    return {
        "filters": [
            sorted(
                {
                    canonicalize(passed.text, reading.is_case_sensitive)
                    for passed in plan.filters
                    # It follows from the condition and the window.
                    if not passed.is_not_null
                }
            )
            for plan in plans
        ],
        "computed": [
            [
                (name, canonicalize(text, reading.is_case_sensitive))
                for name, text in plan.computed
                if name != SIGN  # it is a part of its own
            ]
            for plan in plans
        ],
    }


# The condition


def name_keys(plan: SidePlan, spec: SideSpec, reading: Reading) -> dict[int, str]:
    """Name the keys of a stream by what they hold. Their positions depend on the order of conjuncts."""
    texts = {name: canonicalize(text, reading.is_case_sensitive) for name, text in plan.computed}

    def name_key(key: Key | None) -> str:
        if key is None:
            return "no event time"
        return f"{texts.get(key.column, key.column)} {key.domain.value} {key.offset!r}"

    return {TIME: name_key(spec.time), **{n: name_key(key) for n, key in enumerate(spec.keys)}}


def describe_equality(names: Sequence[dict[int, str]], equality: Equality) -> list[str]:
    """Describe an equality by the keys that it compares."""
    return [names[0][equality.left], names[1][equality.right]]


def describe_dimension(names: Sequence[dict[int, str]], dimension: Dimension) -> list[Any]:
    """Describe a comparison by its side, its key and its bounds."""
    point, bounds = names[dimension.point], names[dimension.point.other]

    def describe(bound: Bound | None) -> str:
        return "open" if bound is None else f"{bounds[bound.key]} {bound.delta!r} {bound.is_strict}"

    return [int(dimension.point), point[dimension.key], describe(dimension.low), describe(dimension.high)]


def name_predicate(predicate: Any) -> list[Any]:
    """Name a predicate by its function and its version, without the module and the functions around it."""
    named = [predicate.name.rpartition(".")[2], repr(predicate.columns), predicate.is_encoded]
    return [*named, predicate.version] if predicate.version else named


def identify_condition(meaning: dict[str, Any], on: Sequence[str]) -> Part:
    """Return the part for a condition with this meaning; ``on`` are its texts as the user wrote them."""
    return Part(json.dumps(meaning, sort_keys=True), " AND ".join(on) or "not written down")


def describe_count(n: int, side: SidePlan) -> str:
    """Describe a count window.

    >>> describe_count(5, SidePlan("a", (), (), ()))
    "the last 5 of 'a'"
    """
    return f"the last {n} of {side.alias!r}"
