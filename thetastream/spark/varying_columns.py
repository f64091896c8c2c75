"""Finds columns of changes whose values depend on more than the row, in the plan that Spark has analysed.

A delete and its insert pass the projections of a plan at different times. So a column such as
``current_timestamp()`` makes them different rows.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError

_OF_ONE_ROW = ("Project", "Filter", "EventTimeWatermark", "SubqueryAlias", "View")
"""The operators that take each row by itself. Below others, rows may be no changes yet."""


def refuse_varying_columns(changes: DataFrame, what: str) -> None:
    """Refuse columns of changes that are computed from a clock or from random values.

    Only a classic session shows the plan. ``what`` is what the error calls the changes. All rows of a batch
    have one instant, so its columns may read the clock.

    Raises
    ------
    QueryError
        NON_DETERMINISTIC or TIME_DEPENDENT.
    """
    for name, condition in _list_varying(changes):
        why = (
            f"rows of {what} may be deleted, and the column {name!r} may have another value for the same row"
        )
        raise QueryError(condition, f"{why}; write the rows into a store, and compute it where they are read")


def _list_varying(changes: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the names of such columns, each with the name of the error."""
    jframe: Any = getattr(changes, "_jdf", None)
    if jframe is None:
        return
    jvm: Any = changes.sparkSession._jvm
    clock = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    plan = jframe.queryExecution().analyzed()
    while (operator := plan.getClass().getSimpleName()) in _OF_ONE_ROW:
        columns = plan.projectList() if operator == "Project" else None
        for column in () if columns is None else map(columns.apply, range(columns.size())):
            # th.changes computes the type of a change, and raises an error for one that it does not know.
            if column.name() == CHANGE_TYPE:
                continue
            if not column.deterministic():
                yield column.name(), "NON_DETERMINISTIC"
            if changes.isStreaming and column.containsPattern(clock):
                yield column.name(), "TIME_DEPENDENT"
        plan = plan.child()
