"""Reads the plan that Spark has analysed for a DataFrame. Only a classic session shows it."""

from typing import Any

from pyspark.sql import DataFrame

DROPPING = {
    *("Sample", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Distinct"),
    *("Deduplicate", "DeduplicateWithinWatermark"),
}
"""The names of Spark's operators that leave rows out because of other rows or by chance."""


def read_plan(frame: DataFrame) -> Any | None:
    """Return the plan of a DataFrame, an object of the JVM; None on Spark Connect."""
    jframe: Any = getattr(frame, "_jdf", None)
    return None if jframe is None else jframe.queryExecution().analyzed()


def name_operator(plan: Any) -> str:
    """Name the operator at the top of a plan, as in ``Filter``."""
    return str(plan.getClass().getSimpleName())


def list_values(found: Any) -> list[Any]:
    """List the values of a sequence of Scala."""
    return [found.apply(n) for n in range(found.size())]


def find_hidden(frame: DataFrame) -> str | None:
    """Find what the expressions of a plan read besides the row, also in SQL functions of the session.

    Returns TIME_DEPENDENT for the clock, SUBQUERY for a table, and None for nothing or on Spark Connect.
    """
    plan = read_plan(frame)
    if plan is None:
        return None
    jvm: Any = frame.sparkSession._jvm
    patterns = getattr(jvm, "org.apache.spark.sql.catalyst.trees.TreePattern")
    if plan.containsPattern(patterns.CURRENT_LIKE()):
        return "TIME_DEPENDENT"
    return "SUBQUERY" if plan.containsPattern(patterns.PLAN_EXPRESSION()) else None
