"""The identity of a query: the parts that must not change when the query restarts from a checkpoint.

The parts have names that users know, because an error shows the name of a part and both texts.
"""

from collections.abc import Sequence

from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.models.base import Model
from thetastream.order import Order
from thetastream.plan.folding import Folding
from thetastream.plan.graph import LoweredGraph
from thetastream.plan.physical import PhysicalPlan, SidePlan
from thetastream.plan.tasks import TasksPlan

Identity = dict[str, str]
"""The text of each part of the query, by the name of the part."""


def identify_two_streams(
    plan: PhysicalPlan, model: Model, order: Order | None = None, folding: Folding | None = None
) -> Identity:
    """Return the identity of a join of two streams. ``folding`` says how units fold their matches."""
    condition = plan.condition
    parts = {
        **_identify_streams(plan.sides),
        "event times": repr([side.time for side in condition.sides]),
        "keys": repr([side.keys for side in condition.sides]),
        "condition": repr((condition.equalities, condition.dimensions)),
        "window": repr(condition.window or plan.counts),
        "ordered": repr(order is not None),
        "same": repr(condition.same),
        "predicates": repr([predicate.name for predicate in condition.predicates]),
        "residual": repr(plan.residual),
        "archive period": repr(plan.archive_period_us),
        "model": repr(model.kept),
    }
    if folding is not None:  # the names of computed columns do not identify them
        parts["folded"] = repr([folding.computed, folding.measures, folding.pane])
        if folding.lazy is not None:  # without ``every``, waiting views would never be released
            parts["lazy"] = "every"
    return parts


def identify_multiway(plan: LoweredGraph, query: MultiwayQuery) -> Identity:
    """Return the identity of a join hop by hop."""
    graph = query.graph
    return {
        **_identify_streams(plan.sides),
        "event times": repr([side.time for side in graph.sides]),
        "keys": repr([side.keys for side in graph.sides]),
        "condition": repr(sorted(graph.edges.items())),
        "predicates": repr([predicate.name for predicate in graph.predicates]),
        "residual": repr(plan.residual),
        "archive period": repr([stored.archive_period_us for stored in query.stored]),
        "model": repr(query.model.kept),
    }


def identify_tasks(plan: TasksPlan, model: Model) -> Identity:
    """Return the identity of several joins behind one exchange: the task names and the parts of each task."""
    parts = {"tasks": ", ".join(sorted(plan.names)), "model": repr(model)}
    for task in plan.tasks:
        of_task = identify_two_streams(task.plan, model).items()
        parts |= {f"task {task.name}: {part}": text for part, text in of_task if part != "model"}
    return parts


def _identify_streams(sides: Sequence[SidePlan]) -> Identity:
    """Return the columns, keys and filters of each stream."""
    return {
        f"stream {side.alias}": "; ".join(
            [
                *(f"{carried.field} {carried.block_type}" for carried in side.carried),
                *(f"{name} = {text}" for name, text in side.computed),
                *(f"where {text}" for text in side.filters),
            ]
        )
        for side in sides
    }
