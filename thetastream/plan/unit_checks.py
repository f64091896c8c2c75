"""Moves conjuncts of the residual to the units, which compare the values of keys as exactly as Catalyst.

Rows of an inner join are filtered by Catalyst behind the units, which costs nothing extra if they leave the
units anyway. Units that write the results themselves must find them complete.
"""

from dataclasses import replace

from thetastream.plan.physical import PhysicalPlan


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
