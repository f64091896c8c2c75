"""Writes a join task that is added while its query runs, over the columns that routers send already.

    plan of the task as a join of its own, what the running tasks share -> WrittenJoin, or a refusal

Routers go on as they were planned: Spark computes no new column before the exchange, and evaluates no new
condition behind it. So each part of the task must be one of these:

    filters         a list of filters of a task of the program; NOT NULL of a column; a column and a constant
    computed keys   computed for a task of the program, for all tuples that pass the filters of the new task
    equal texts     if their hashes are not computed, keys are the first bytes; all bytes decide
    residuals       a comparison that units decide exactly
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from math import isfinite
from typing import Any

from thetastream.conditions.comparisons import find_comparisons
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import FLIPPED, Comparison
from thetastream.conditions.tokens import parse
from thetastream.core.columns import SIGN
from thetastream.core.condition import Condition, Domain, ExactBand, ExactOrder, Key
from thetastream.core.errors import QueryError
from thetastream.core.records import encode
from thetastream.core.sides import Side
from thetastream.engine.running_tasks import ColumnTest, WrittenCheck, WrittenIndex, WrittenJoin
from thetastream.families.tasks import Filters, Guards, PlanOfTask, TasksPlan, rename_keys
from thetastream.index import REGISTRY
from thetastream.lowering.domains import find_domain, find_family, is_same_key
from thetastream.lowering.event_time import find_column
from thetastream.lowering.payload import check_at_units, list_catalyst_residual
from thetastream.lowering.physical import Filter, PhysicalPlan, SidePlan
from thetastream.lowering.query import Resolver, Stream

_EPOCH = date(1970, 1, 1)


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
) -> tuple[list[ColumnTest], list[str]]:
    """Write the filters of a stream as tests that units decide. Returns the texts of the others too."""
    tests, rest = [], []
    for one in filters:
        found = _write_test(one, stream, resolver)
        if found is None:
            rest.append(one)
        else:
            tests += found
    for guard, column in guards.passes.items():
        if set(filters).issuperset(guard) and set(rest) & set(guard):
            tests.append(ColumnTest(column, is_flag=True))
            rest = [one for one in rest if one not in guard]
    return list(dict.fromkeys(tests)), [one.text for one in rest]


def _write_test(one: Filter, stream: Stream, resolver: Resolver) -> list[ColumnTest] | None:
    """Write one filter over block columns; None if units cannot decide it as Spark does."""
    blocks = {carried.field: carried.block_column for carried in stream.carried}
    if one.required is not None:
        column = find_column(parse(one.required), stream, resolver.is_case_sensitive)
        return None if column is None else [ColumnTest(blocks[column])]
    phrase = parse(one.text).bare()
    if [token.keyword for token in phrase.tokens[-3:]] == ["IS", "NOT", "NULL"]:
        column = find_column(phrase.slice(0, -3), stream, resolver.is_case_sensitive)
        return None if column is None else [ColumnTest(blocks[column])]
    column = find_column(phrase, stream, resolver.is_case_sensitive)
    if column is not None:
        is_boolean = stream.type_of(column) == "boolean"
        return [ColumnTest(blocks[column], is_flag=True)] if is_boolean else None
    found, ops = find_comparisons(phrase), {}
    if not found:
        found, ops = find_comparisons(parse(f"NOT ({one.text})")), {"=": "<>"}
    tests = []
    for comparison in found:
        op = ops.get(comparison.op) if ops else comparison.op
        test = None if op is None else _write_comparison(comparison, op, stream, resolver)
        if test is None:
            return None
        tests.append(test)
    return tests if len(tests) == 1 or not ops else None


def _write_comparison(
    comparison: Comparison, op: str, stream: Stream, resolver: Resolver
) -> ColumnTest | None:
    """Write a comparison of a column and a constant, in the type in which Spark compares them."""
    f, g = comparison.f, comparison.g
    if find_column(f, stream, resolver.is_case_sensitive) is None:
        f, g, op = g, f, FLIPPED.get(op, op)
    column = find_column(f, stream, resolver.is_case_sensitive)
    if comparison.limit is not None or op == "<=>" or column is None or find_references(g, (stream.alias,)):
        return None
    constant, type_ = resolver.constant(g.text), stream.type_of(column)
    if constant is None or constant.value is None:
        return None
    common = type_
    if constant.type != type_:
        if find_family(type_) is None or find_family(type_) != find_family(constant.type):
            return None
        common = resolver.type_of(f"coalesce(({f.text}), ({g.text}))", (stream.alias,)) or ""
    domain = find_domain(common)
    if domain is None or not is_same_key(type_, common):
        return None
    value = _read_constant(constant.value, common, domain)
    if value is None:
        return None
    block = next(carried.block_column for carried in stream.carried if carried.field == column)
    if domain is Domain.TEXT:
        return ColumnTest(block, op, None, value) if op in ("=", "<>") else None
    return ColumnTest(block, op, domain, value)


def _read_constant(value: Any, common: str, domain: Domain) -> int | float | str | None:
    """Return a constant as units compare it; None if they cannot.

    >>> _read_constant(3, "double", Domain.FLOAT), _read_constant(date(1970, 1, 3), "date", Domain.INT)
    (3.0, 2)
    """
    if common == "string":
        return value if isinstance(value, str) else None
    if common == "date":
        return (value - _EPOCH).days if type(value) is date else None
    if domain is Domain.INT and isinstance(value, int) and (common == "boolean") is isinstance(value, bool):
        return int(value)
    if domain is Domain.FLOAT and common == "double" and isinstance(value, int | float | Decimal):
        # JSON has no number for NaN and infinity.
        return float(value) if isfinite(value) else None
    return None


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
