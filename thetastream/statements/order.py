"""Refuses an order of results in statements whose rows cannot have one.

Rows have the order of the results of a join. So the statements have one join, of two inputs, and no clause
that brings rows of the join together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thetastream.conditions import Phrase, make_error_at
from thetastream.conditions.clauses import SelectClauses
from thetastream.conditions.statement import Statement, list_selects
from thetastream.core.errors import QueryError
from thetastream.families.options import OF_ORDER
from thetastream.families.views.planner import is_surely_grouped


def is_regrouped(clauses: SelectClauses) -> bool:
    """Whether the clauses alone show that rows are groups or are distinct, so that they have no order."""
    has_groups = is_surely_grouped(clauses.items, clauses.group_by) or clauses.having is not None
    return has_groups or clauses.is_distinct


def refuse_order(items: Phrase) -> QueryError:
    """Make the error of a SELECT that brings ordered rows together. It points at the select list."""
    what = "GROUP BY, aggregates and DISTINCT bring rows together, which have no order of arrival then"
    hint = "leave order and punctuations out, or group the rows of the sink of ordered results"
    return make_error_at(items.source, items.tokens[0].start, f"{what}; {hint}", "ORDER")


def find_order_problems(statements: Sequence[Statement], options: Mapping[str, Any]) -> Iterator[QueryError]:
    """Yield an error if an order is asked for and the rows of the statements cannot have it.

    ``options`` are those that the caller gives for all statements.
    """
    selects = [
        select
        for statement in statements
        if any({**options, **statement.options}.get(name) for name in OF_ORDER)
        for select in list_selects(statement.select)
    ]
    for select in selects:
        if is_regrouped(select.clauses):
            yield refuse_order(select.items)
    joins = [select for select in selects if len(select.sources) > 1]
    if selects and (len(joins) != 1 or len(joins[0].sources) != 2):
        found = [len(select.sources) for select in joins]
        there = f"a join of {found[0]} inputs" if len(found) == 1 else f"{len(found) or 'no'} joins"
        what = f"order is that of the results of one join of two inputs, and sql has {there}"
        yield QueryError("ORDER", f"{what}; leave order and punctuations out")
