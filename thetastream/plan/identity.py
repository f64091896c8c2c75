"""The identity of a query: the parts that a checkpoint keeps, so that another query cannot continue from it.

The parts have names that users know, because an error shows the name of a part and what the user wrote.
``thetastream.core.identity`` compares them. An index, an archive period, a cache folder and statistics are
not parts, because they do not change which tuples are stored.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from thetastream.core.condition import TIME, Bound, Dimension, Equality, Key, SideSpec
from thetastream.core.identity import CHOSEN, COLUMNS, EQUAL, NARROWER, Part
from thetastream.core.windows import spell
from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.engine.order import Order
from thetastream.models.base import Model
from thetastream.plan.folding import Calculated, Computed, Folding
from thetastream.plan.graph import LoweredGraph
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.plan.tasks import TasksPlan
from thetastream.predicate.canonical import canonicalize

Parts = dict[str, Part]
"""The parts of a query by their names."""
CONDITION, WINDOW, MODEL = "the condition", "the window", "the model"


@dataclass(frozen=True)
class Reading:
    """How the session reads a query and how its model came about."""

    is_case_sensitive: bool = False
    chosen_for: int | None = None
    """The number of shuffle partitions for which the planner chose the model. None means that the user named
    the model."""


def identify_two_streams(
    plan: PhysicalPlan,
    model: Model,
    reading: Reading,
    order: Order | None = None,
    folding: Folding | None = None,
) -> Parts:
    """Return the identity of a join of two streams. ``folding`` says how units fold their matches."""
    condition, sides = plan.condition, plan.condition.sides
    names = [_name_keys(side, spec, reading) for side, spec in zip(plan.sides, sides, strict=True)]
    # They have the same meaning as conjuncts of the residual.
    unit_checks = [check for _, checks in plan.unit_checks for check in checks]
    meaning = {
        **_describe_inputs(plan.sides, reading),
        "equalities": sorted(_describe_equality(names, equality) for equality in condition.equalities),
        "dimensions": sorted(_describe_dimension(names, dimension) for dimension in condition.dimensions),
        "same": sorted(condition.same),
        "predicates": sorted(
            _name_predicate(predicate) for predicate in condition.predicates if predicate not in unit_checks
        ),
        "residual": sorted(canonicalize(text, reading.is_case_sensitive) for text in plan.residual),
    }
    parts = {
        **_identify_streams(plan.sides, sides),
        CONDITION: _identify_condition(meaning, plan.on),
        WINDOW: _identify_window(plan),
        MODEL: identify_model(model, reading),
    }
    if not plan.how.is_inner:
        parts["the kind of join"] = Part(plan.how.name, plan.how.name)
    if order is not None:
        parts["the order of results"] = Part("ordered", "by arrival")
    if folding is not None:
        parts |= _identify_folding(folding, reading)
    return parts


def identify_multiway(plan: LoweredGraph, query: MultiwayQuery, reading: Reading) -> Parts:
    """Return the identity of a join hop by hop.

    Its window must stay as it is, because partial results that were found in the old window are in flight.
    """
    graph = query.graph
    names = [_name_keys(side, spec, reading) for side, spec in zip(plan.sides, graph.sides, strict=True)]
    edges: dict[str, Any] = {}
    spans, words = [], []
    for (left, right), edge in sorted(graph.edges.items()):
        pair = [names[left], names[right]]
        edges[f"{left} {right}"] = [
            sorted(_describe_equality(pair, equality) for equality in edge.equalities),
            sorted(_describe_dimension(pair, dimension) for dimension in edge.dimensions),
            sorted(edge.same),
        ]
        low, high = edge.window
        spans.append([low, high])
        if low is not None or high is not None:
            a, b = graph.sides[left].alias, graph.sides[right].alias
            words.append(f"{a} - {b} from {spell(low)} to {spell(high)}")
    if graph.counts is not None:
        spans = [list(graph.counts)]
        words = [_describe_count(n, side) for n, side in zip(graph.counts, plan.sides, strict=True)]
    meaning = {
        **_describe_inputs(plan.sides, reading),
        "edges": edges,
        "predicates": sorted(_name_predicate(predicate) for predicate in graph.predicates),
        "residual": sorted(canonicalize(text, reading.is_case_sensitive) for text in plan.residual),
    }
    return {
        **_identify_streams(plan.sides, graph.sides),
        CONDITION: _identify_condition(meaning, plan.on),
        WINDOW: Part(json.dumps(spans), ", ".join(words) or "the full history"),
        MODEL: identify_model(query.model, reading),
    }


def identify_tasks(plan: TasksPlan, model: Model, reading: Reading) -> Parts:
    """Return the identity of several joins behind one exchange: the task names and the parts of each task."""
    names = ", ".join(sorted(plan.names))
    parts = {"the set of tasks": Part(names, names), MODEL: identify_model(model, reading)}
    for task in plan.tasks:
        for name, part in identify_two_streams(task.plan, model, reading).items():
            if name.startswith("stream "):
                parts[name] = part
            elif name != MODEL:
                parts[f"{name} of task {task.name!r}"] = part
    return parts


def identify_model(model: Model, reading: Reading) -> Part:
    """Return the part that names the model."""
    kept = repr(model.kept)
    if reading.chosen_for is None:
        return Part(kept, kept)
    return Part(f"{reading.chosen_for}:{kept}", kept, CHOSEN)


def identify_settings(settings: dict[str, str]) -> Parts:
    """Return the parts for settings of the session that change the values of expressions."""
    return {name: Part(value, value) for name, value in settings.items()}


# Streams


def _identify_streams(plans: Sequence[SidePlan], specs: Sequence[SideSpec]) -> Parts:
    """Return the columns and the event time of each stream."""
    parts = {}
    for plan, spec in zip(plans, specs, strict=True):
        columns = [f"{carried.field} {carried.type or carried.block_type}" for carried in plan.carried]
        parts[f"stream {plan.alias!r}"] = Part(json.dumps(columns), ", ".join(columns), COLUMNS)
        fields = {carried.block_column: carried.field for carried in plan.carried}
        time = "no column" if spec.time is None else fields.get(spec.time.column, spec.time.column)
        parts[f"the event time of {plan.alias!r}"] = Part(time, time)
    return parts


def _describe_inputs(plans: Sequence[SidePlan], reading: Reading) -> dict[str, Any]:
    """Return the filters of each stream, and its computed columns as they lie in blocks."""
    return {
        "filters": [
            sorted(
                {
                    canonicalize(text, reading.is_case_sensitive)
                    for text in plan.filters
                    if not _is_not_null(text)
                }
            )
            for plan in plans
        ],
        "computed": [
            [(name, canonicalize(text, reading.is_case_sensitive)) for name, text in plan.computed]
            for plan in plans
        ],
    }


def _is_not_null(text: str) -> bool:
    """Whether a filter only excludes NULL keys. It follows from the condition and the window."""
    return text.startswith("(") and text.endswith(") IS NOT NULL")


# The condition


def _name_keys(plan: SidePlan, spec: SideSpec, reading: Reading) -> dict[int, str]:
    """Name the keys of a stream by what they hold. Their positions depend on the order of conjuncts."""
    texts = {name: canonicalize(text, reading.is_case_sensitive) for name, text in plan.computed}

    def name_key(key: Key | None) -> str:
        if key is None:
            return "no event time"
        return f"{texts.get(key.column, key.column)} {key.domain.value} {key.offset!r}"

    return {TIME: name_key(spec.time), **{n: name_key(key) for n, key in enumerate(spec.keys)}}


def _describe_equality(names: Sequence[dict[int, str]], equality: Equality) -> list[str]:
    return [names[0][equality.left], names[1][equality.right]]


def _describe_dimension(names: Sequence[dict[int, str]], dimension: Dimension) -> list[Any]:
    point, bounds = names[dimension.point], names[dimension.point.other]

    def describe(bound: Bound | None) -> str:
        return "open" if bound is None else f"{bounds[bound.key]} {bound.delta!r} {bound.is_strict}"

    return [int(dimension.point), point[dimension.key], describe(dimension.low), describe(dimension.high)]


def _name_predicate(predicate: Any) -> list[Any]:
    """Name a predicate by its function, without the module and the functions around it."""
    return [predicate.name.rpartition(".")[2], repr(predicate.columns), predicate.is_encoded]


def _identify_condition(meaning: dict[str, Any], on: Sequence[str]) -> Part:
    return Part(json.dumps(meaning, sort_keys=True), " AND ".join(on) or "not written down")


def _identify_window(plan: PhysicalPlan) -> Part:
    window = plan.condition.window
    if plan.counts is not None:
        counts = zip(plan.counts, plan.sides, strict=True)
        words = " and ".join(_describe_count(n, side) for n, side in counts)
        return Part(json.dumps([[-n, None] for n in plan.counts]), words, NARROWER)
    low = None if window is None or window.low is None else int(window.low.delta)
    high = None if window is None or window.high is None else int(window.high.delta)
    words = "the full history" if window is None else window.text
    # With a narrower window, tuples would have been decided before the query was started again.
    return Part(json.dumps([[low, high]]), words, NARROWER if plan.how.is_inner else EQUAL)


def _describe_count(n: int, side: SidePlan) -> str:
    return f"the last {n} of {side.alias!r}"


# Aggregation


def _identify_folding(folding: Folding, reading: Reading) -> Parts:
    def describe(columns: Iterable[Computed | Calculated]) -> list[list[str]]:
        # The names of computed columns do not identify them.
        return [
            [
                column.alias if isinstance(column, Computed) else "",
                canonicalize(column.text, reading.is_case_sensitive),
            ]
            for column in columns
        ]

    measures = [
        [measure.name, repr(measure.function), describe([measure.column] if measure.column else [])]
        for measure in folding.measures
    ]
    meaning = [describe(folding.groups), measures, repr(folding.pane)]
    parts = {"the set of groups and aggregates": Part(json.dumps(meaning), folding.describe(), EQUAL)}
    if folding.where is not None:  # stored tuples keep what it reads
        where = json.dumps(describe([folding.where]))
        parts["the condition of folded matches"] = Part(where, folding.where.text, EQUAL)
    if folding.lazy is not None:  # without ``every``, waiting views would never be released
        parts["every"] = Part("every", "set")
    return parts
