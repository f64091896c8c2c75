"""Evaluates a select list over a join: plans the join of its streams, and selects from the results."""

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from thetastream.aggregates import NotFoldable
from thetastream.conditions import tokenize
from thetastream.conditions.clauses import find_endless
from thetastream.conditions.names import find_names
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.how import Nearest
from thetastream.families.options import GroupOptions, StatementOptions
from thetastream.joins.ask.request import read_request
from thetastream.joins.ask.shown import find_names_in
from thetastream.joins.ask.streams import read_frames
from thetastream.joins.compose.nested import plan_nested
from thetastream.joins.joined import Joined
from thetastream.joins.plan import Built, Plan, remember_built
from thetastream.joins.planning import plan_join
from thetastream.statements.grouped import fold_groups
from thetastream.statements.join_select import JoinSelect
from thetastream.statements.order import is_regrouped, refuse_order
from thetastream.statements.select import find_changes_problem, refuse_changes, select_rows


def plan_select(join_select: JoinSelect) -> Joined:
    """Plan the join of a select list, over the columns that it reads.

    The errors that it raises do not contain their position in the statement yet.
    """
    frames = read_frames(join_select.frames)
    columns: dict[str, Collection[str] | None] = {}
    rankings = [tokenize(join.how.by) for join in join_select.nested if isinstance(join.how, Nearest)]
    for alias in frames:
        shown = find_names([*join_select.clauses.phrases, *rankings], alias)
        asked = find_names_in(join_select.on, alias)
        columns[alias] = None if shown is None or asked is None else shown | asked
    if join_select.nested:
        join: Joined = plan_nested(
            frames,
            join_select.nested,
            join_select.within,
            join_select.model,
            join_select.options,
            columns=columns,
            plan_join=plan_join,
        )
    else:
        request = read_request(
            frames,
            join_select.on,
            join_select.within,
            join_select.model,
            join_select.options,
            columns=columns,
            how=join_select.how,
            door=GroupOptions if is_regrouped(join_select.clauses) else StatementOptions,
            has_result_time=False,  # the select list adds it by itself, and an alias may have its name
            bounds_watermark=join_select.every is not None,
        )
        join = plan_join(request, frames)
    if join.facts.has_deletes:
        problem = find_changes_problem(" and ".join(frames), join_select.clauses)
        raise_problems([] if problem is None else [problem])
    is_streaming, clauses = any(stream.is_streaming for stream in join.inputs), join_select.clauses
    if is_streaming and not join.facts.is_prompt and clauses.is_distinct and clauses.group_by is None:
        what = f"{join_select.model!r} may find results of {len(join.inputs)} streams behind the watermark"
        hint = "use GROUP BY with the output mode update, or leave model out"
        raise QueryError("LATE_RESULTS", f"{what}, by which DISTINCT forgets rows; {hint}")
    return join


class SelectResults(NamedTuple):
    """The rows of a select list, and how they are computed."""

    rows: DataFrame
    join: Joined
    how: str = ""
    """How groups are made; empty without groups."""

    def explain(self) -> str:
        """Describe the join and the aggregation."""
        return Plan(self.join).explain() + (f"\n== Aggregation ==\n{self.how}\n" if self.how else "")


def evaluate_select(spark: SparkSession, join_select: JoinSelect, join: Joined) -> SelectResults:
    """Evaluate the select list over the results of the join, or over views if units can fold the matches."""
    if any(stream.is_streaming for stream in join.inputs):
        raise_problems(list(find_endless(join_select.clauses)))
    selected = select_rows(spark, join_select, join)
    if selected.is_grouped and join.facts.is_ordered:
        raise refuse_order(join_select.clauses.items)
    if not selected.is_grouped:
        if selected.items is not None:
            build = lambda join: select_rows(spark, join_select, join).rows  # noqa: E731
            remember_built(selected.rows, Built(join, selected.items, build))
        return SelectResults(selected.rows, join)
    rows = selected.rows
    try:
        rows, join, how = fold_groups(spark, join_select, join, rows)
    except NotFoldable as reason:
        if join.facts.has_deletes:
            raise refuse_changes(
                " and ".join(join_select.frames), f"units cannot fold their groups: {reason}"
            ) from None
        if join_select.every is not None:
            what = "every delays the views of units, but pairs leave the units of this query"
            raise QueryError("EVERY", f"{what}: {reason}; leave every={join_select.every!r} out") from None
        how = f"pairs leave the units, Spark aggregates them   ({reason})"
    return SelectResults(rows, join, how)
