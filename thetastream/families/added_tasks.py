"""Writes a join task that is added while its query runs, over the columns that routers send already.

    plan of the task as a join of its own, what the running tasks share -> WrittenJoin, or a refusal

Routers go on as they were planned: Spark computes no new column before the exchange, and evaluates no new
condition behind it. So each part of the task must be one of these:

    filters         a list of filters of a task of the program; what units decide of columns and constants
    computed keys   computed for a task of the program, for all tuples that pass the filters of the new task
    equal texts     if their hashes are not computed, keys are the first bytes; all bytes decide
    residuals       a comparison that units decide exactly
"""

import json
from collections.abc import Iterator
from dataclasses import replace

from thetastream.core.columns import SIGN
from thetastream.core.condition import Condition, Domain, ExactBand, ExactOrder, Key
from thetastream.core.errors import QueryError
from thetastream.core.records import encode
from thetastream.core.sides import Side
from thetastream.engine.running_tasks import Clause, ColumnTest, WrittenCheck, WrittenIndex, WrittenJoin
from thetastream.families.added_filters import write_clauses
from thetastream.families.tasks import Filters, Guards, PlanOfTask, TasksPlan, rename_keys
from thetastream.index import REGISTRY
from thetastream.lowering.payload import check_at_units, list_catalyst_residual
from thetastream.lowering.physical import PhysicalPlan, SidePlan
from thetastream.lowering.query import Resolver, Stream


def write_task(shared: TasksPlan, plan: PlanOfTask) -> WrittenJoin:
    """Write a task that is added to running ones. Its plan is that of a join of its own.

    Raises
    ------
    QueryError
        CANNOT_ADD_TASK. The message names all parts that the running query cannot evaluate.
    """
    physical = plan.physical
    lacking = [*list_catalyst_residual(physical)]
    physical = _compare_bytes(rename_keys(check_at_units(physical)), shared)
    tests = []
    for side in Side:
        filters = physical.sides[side].filters
        found, missing = _write_filters(
            filters, shared.guards[side], plan.inputs[side], plan.request.resolver
        )
        tests.append(tuple(found))
        lacking += missing
        lacking += list(_find_missing_keys(physical.sides[side], shared.guards[side]))
    checks, others = _write_checks(physical.condition)
    lacking += others
    if any(index.shape.name not in REGISTRY for index in physical.indexes):
        lacking.append(f"the index {physical.indexes[0].shape.name}")
    left, right = (
        WrittenIndex(index.shape.name, index.equalities, index.dimensions) for index in physical.indexes
    )
    condition = physical.condition
    written = WrittenJoin(
        plan.facts.condition,
        condition.sides,
        (left, right),
        condition.equalities,
        condition.dimensions,
        condition.window,
        condition.same,
        tuple(checks),
        physical.archive_period_us,
        (tests[0], tests[1]),
    )
    try:
        json.dumps(encode(written), allow_nan=False)
    except ValueError:
        lacking.append("a bound that is no number")
    if lacking:
        listed = "; ".join(dict.fromkeys(lacking))
        raise QueryError(
            "CANNOT_ADD_TASK",
            "a task that is added can use only what the running query sends, and it does not compute "
            f"{listed}. Add these values as columns of a stream before th.join_many, or give the task to "
            "th.join_many from the beginning",
        )
    return written


def _compare_bytes(plan: PhysicalPlan, shared: TasksPlan) -> PhysicalPlan:
    """Let keys be the first bytes of two columns, if routers do not compute their hashes for all tuples.

    The columns are compared by all of their bytes in any case.
    """
    for number, columns in zip(plan.hashed, plan.condition.same, strict=True):
        if not any(list(_find_missing_keys(plan.sides[side], shared.guards[side])) for side in Side):
            return plan
        left = _key_by_bytes(plan, number, Side.LEFT, columns[Side.LEFT])
        plan = _key_by_bytes(left, number, Side.RIGHT, columns[Side.RIGHT])
    return plan


def _key_by_bytes(plan: PhysicalPlan, number: int, side: Side, column: str) -> PhysicalPlan:
    """Return the plan in which one equality compares the first bytes of a column of one side.

    Another part of the condition may compare the hash too. Then it stays, and the column is one more key.
    """
    condition = plan.condition
    places = [(one.left, one.right)[side] for one in condition.equalities]
    place, others = places[number], [*places[:number], *places[number + 1 :]]
    others += [key for one in condition.dimensions for key in one.list_keys(side)]
    spec, key = condition.sides[side], Key(column, Domain.TEXT)
    hashed, keys = spec.keys[place].column, list(spec.keys)
    if place in others:
        place = len(keys)
        keys.append(key)
    else:
        keys[place] = key
    read = {one.column for one in keys}
    equalities = list(condition.equalities)
    left, right = (place, equalities[number].right) if side is Side.LEFT else (equalities[number].left, place)
    equalities[number] = replace(equalities[number], left=left, right=right)
    specs, sides = list(condition.sides), list(plan.sides)
    specs[side] = replace(
        spec, keys=tuple(keys), computed=tuple(one for one in spec.computed if one != hashed or one in read)
    )
    sides[side] = replace(
        sides[side],
        computed=tuple(one for one in sides[side].computed if one[0] != hashed or hashed in read),
    )
    condition = replace(condition, sides=(specs[0], specs[1]), equalities=tuple(equalities))
    return replace(plan, sides=(sides[0], sides[1]), condition=condition)


def _find_missing_keys(side: SidePlan, guards: Guards) -> Iterator[str]:
    """Yield the keys of a task that routers do not compute for all tuples that pass its filters."""
    passed = set(side.filters)
    for column, text in side.computed:
        if column != SIGN and not any(passed.issuperset(guard) for guard in guards.keys.get(column, ())):
            yield text


def _write_filters(
    filters: Filters, guards: Guards, stream: Stream, resolver: Resolver
) -> tuple[list[Clause], list[str]]:
    """Write the filters of a stream as clauses that units decide. Returns the texts of the others too."""
    clauses, rest = [], []
    for one in filters:
        found = write_clauses(one, stream, resolver)
        if found is None:
            rest.append(one)
        else:
            clauses += found
    for guard, column in guards.passes.items():
        if set(filters).issuperset(guard) and set(rest) & set(guard):
            clauses.append((ColumnTest(column, is_flag=True),))
            rest = [one for one in rest if one not in guard]
    return list(dict.fromkeys(clauses)), [one.text for one in rest]


def _write_checks(condition: Condition) -> tuple[list[WrittenCheck], list[str]]:
    """Write the comparisons that units decide. Returns the names of those that have no written form."""
    checks, others = [], []
    for predicate in condition.predicates:
        function, columns = predicate.function, predicate.columns
        if isinstance(function, ExactBand | ExactOrder):
            left, right = (pairs[0][1] for pairs in columns)
            band = function if isinstance(function, ExactBand) else None
            order = function if isinstance(function, ExactOrder) else None
            checks.append(WrittenCheck(predicate.name, (left, right), band, order))
        else:
            others.append(f"the comparison {predicate.name}")
    return checks, others
