"""Exchanges the payload of a planned join. The condition stays, and other columns are sent with its keys.

Block columns are numbered anew, left before right. So the result is the plan of a join of streams that have
exactly these columns.

Moves conjuncts of the residual to the units, which compare the values of keys as exactly as Catalyst.

Rows of an inner join are filtered by Catalyst behind the units, which costs nothing extra if they leave the
units anyway. Units that write the results themselves must find them complete.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from thetastream.core.condition import Condition, Key, PythonPredicate, SideSpec
from thetastream.lowering.physical import Carried, PhysicalPlan


def exchange_payload(
    plan: PhysicalPlan, carried: tuple[tuple[Carried, ...], tuple[Carried, ...]]
) -> PhysicalPlan:
    """Return the plan with these columns as the payload of the left and the right stream.

    They must include every payload column that the condition reads.
    """
    names = [
        {old.block_column: new.block_column for old in side.carried for new in mine if new.field == old.field}
        for side, mine in zip(plan.sides, carried, strict=True)
    ]
    sides = [replace(side, carried=mine) for side, mine in zip(plan.sides, carried, strict=True)]
    condition = _rename(plan.condition, names)
    specs = [
        replace(spec, columns=tuple(column.block_column for column in mine))
        for spec, mine in zip(condition.sides, carried, strict=True)
    ]
    condition = replace(condition, sides=(specs[0], specs[1]))
    return replace(plan, sides=(sides[0], sides[1]), condition=condition)


def narrow_results(plan: PhysicalPlan, read: Collection[str]) -> PhysicalPlan:
    """Return the plan whose results have only these block columns. What units store stays as it is.

    Each side keeps at least one column, so that its matches have a length.
    """
    left, right = (
        replace(spec, columns=tuple(name for name in spec.columns if name in read) or spec.columns[:1])
        for spec in plan.condition.sides
    )
    return replace(plan, condition=replace(plan.condition, sides=(left, right)))


def _rename(condition: Condition, names: Sequence[Mapping[str, str]]) -> Condition:
    """Return the condition with the new names of each side's payload columns.

    Computed columns keep their names.
    """
    left, right = (_rename_keys(spec, new) for spec, new in zip(condition.sides, names, strict=True))
    return replace(
        condition,
        sides=(left, right),
        predicates=tuple(_rename_columns(predicate, names) for predicate in condition.predicates),
        same=tuple(
            (names[0].get(mine, mine), names[1].get(theirs, theirs)) for mine, theirs in condition.same
        ),
    )


def _rename_keys(spec: SideSpec, names: Mapping[str, str]) -> SideSpec:
    def rename(key: Key) -> Key:
        return replace(key, column=names.get(key.column, key.column))

    return replace(
        spec,
        keys=tuple(rename(key) for key in spec.keys),
        time=None if spec.time is None else rename(spec.time),
    )


def _rename_columns(predicate: PythonPredicate, names: Sequence[Mapping[str, str]]) -> PythonPredicate:
    left, right = (
        tuple((argument, new.get(block, block)) for argument, block in columns)
        for columns, new in zip(predicate.columns, names, strict=True)
    )
    return replace(predicate, columns=(left, right))


def list_catalyst_residual(plan: PhysicalPlan) -> tuple[str, ...]:
    """List the conjuncts of the residual that only Catalyst can evaluate."""
    replaceable = dict(plan.unit_checks)
    return tuple(text for text in plan.residual if text not in replaceable)


def check_at_units(plan: PhysicalPlan) -> PhysicalPlan:
    """Return the plan whose units evaluate all conjuncts that they can.

    The residual stays as it is, because it identifies the query.
    """
    checks = tuple(check for _, checks in plan.unit_checks for check in checks)
    condition = replace(plan.condition, predicates=(*checks, *plan.condition.predicates))
    return replace(plan, condition=condition)
