"""Finds what depends on more than the row in the plan of changes, as Spark has analysed it.

A delete and its insert pass the operators of a plan at different times. So a column such as
``current_timestamp()`` makes them different rows, and a filter such as ``rand() < 0.5`` may keep one of them.
"""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from thetastream.core.columns import CHANGE_TYPE, CHANGES
from thetastream.core.errors import QueryError
from thetastream.spark.analysed import DROPPING, list_values, name_operator, read_plan
from thetastream.spark.sources.idle import CONTROL

_OF_ONE_ROW = {
    *("Project", "Filter", "Generate", "EventTimeWatermark", "SubqueryAlias", "View", "Union", "Sort"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions", "ResolvedHint", "UnresolvedHint"),
    *("CollectMetrics", "WithCTE", "CTERelationDef"),
}
"""The operators that take each row by itself. Below others, rows may be no changes yet."""
_OTHER_VALUE = "may have another value for the same row"
_TABLE = "reads a table, whose rows may be others when the same row is deleted"
_JOIN = f"Spark's join {_TABLE}"


def refuse_varying_columns(changes: DataFrame, what: str) -> None:
    """Refuse operators of changes that depend on a clock, on random values, on a table or on other rows.

    Only a classic session shows the plan. ``what`` is what the error calls the changes. All rows of a batch
    have one instant, so its columns may read the clock and tables.

    Raises
    ------
    QueryError
        NON_DETERMINISTIC, TIME_DEPENDENT or CHANGES_TABLE.
    """
    plan = read_plan(changes)
    if plan is None:
        return
    finder = _Finder(changes.sparkSession._jvm, plan, changes.isStreaming)
    for why, condition in finder.find(plan):
        hint = "write the rows into a store, and compute it where they are read"
        raise QueryError(condition, f"rows of {what} may be deleted, and {why}; {hint}")


class _Finder:
    """Finds what varies in one plan."""

    def __init__(self, jvm: Any, plan: Any, is_streaming: bool) -> None:
        catalyst = jvm.org.apache.spark.sql.catalyst
        patterns, self._rules = catalyst.trees.TreePattern, catalyst.optimizer
        self._is_streaming = is_streaming
        asked = (
            (patterns.CURRENT_LIKE(), _OTHER_VALUE, "TIME_DEPENDENT"),
            (patterns.PLAN_EXPRESSION(), _TABLE, "CHANGES_TABLE"),
        )
        # The patterns of a plan are those of all its operators.
        self._asked = [one for one in asked if is_streaming and plan.containsPattern(one[0])]
        found = self._replace_special(plan) if is_streaming else None
        self._has_special = found is not None and not found[0].equals(found[1])

    def find(self, plan: Any) -> Iterator[tuple[str, str]]:
        """Yield what varies in a plan, each with the name of the error."""
        operator = name_operator(plan)
        children = list_values(plan.children())
        if operator in _OF_ONE_ROW:
            # Metrics are no columns of the rows.
            if operator != "CollectMetrics":
                yield from self._find_here(plan, operator)
            for child in children:
                yield from self.find(child)
        elif operator in DROPPING and _has_changes(plan):
            yield f"{operator} may keep the insert of a row and drop its delete", "NON_DETERMINISTIC"
        elif operator == "Join" and self._is_streaming and _has_changes(plan):
            yield from ((_JOIN, "CHANGES_TABLE") for child in children if not child.isStreaming())

    def _find_here(self, plan: Any, operator: str) -> Iterator[tuple[str, str]]:
        """Yield what varies in the expressions of one operator."""
        # th.changes computes the type of a change, and raises an error for one that it does not know.
        if operator == "Generate" and any(
            one.name() == CHANGE_TYPE for one in list_values(plan.generatorOutput())
        ):
            return
        # The filter of control rows is only called non-deterministic, so that Spark does not move it.
        read = plan.references().toSeq() if operator == "Filter" else None
        if read is not None and [one.name() for one in list_values(read)] == [CONTROL]:
            return
        for expression, is_special in zip(
            list_values(plan.expressions()), self._list_special(plan), strict=True
        ):
            found = [asked[1:] for asked in self._asked if expression.containsPattern(asked[0])]
            if is_special:
                found.append((_OTHER_VALUE, "TIME_DEPENDENT"))
            if not expression.deterministic():
                found.append((_OTHER_VALUE, "NON_DETERMINISTIC"))
            if found and not (operator == "Project" and expression.name() == CHANGE_TYPE):
                is_column = operator == "Project"
                named = f"the column {expression.name()!r}" if is_column else repr(expression.sql())
                yield from ((f"{named} {why}", error) for why, error in found)

    def _list_special(self, plan: Any) -> list[bool]:
        """List which expressions of an operator have a text such as 'now' as a time."""
        found = self._replace_special(plan) if self._has_special else None
        if found is None:
            return [False] * plan.expressions().size()
        before, after = (list_values(one.expressions()) for one in found)
        return [not one.equals(other) for one, other in zip(before, after, strict=True)]

    def _replace_special(self, plan: Any) -> tuple[Any, Any] | None:
        """Replace texts such as 'now' by times: the plans before and after; None if a constant has an error.

        A rule of Spark's optimizer replaces them, behind two others.
        """
        try:
            before = self._rules.ComputeCurrentTime.apply(self._rules.ReplaceExpressions.apply(plan))
            return before, self._rules.SpecialDatetimeValues.apply(before)
        except Py4JError:
            return None


def _has_changes(plan: Any) -> bool:
    """Whether columns of a plan are those of changes."""
    return CHANGES in plan.schema().json()
