"""``th.sql`` runs statements: a SELECT becomes a join, and a Spark SQL query over the results of the join.

SELECT items FROM r, s WHERE c WITHIN w   ->   SELECT items FROM th.join({"r": .., "s": ..}, c, w)
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from thetastream.conditions import make_error_at
from thetastream.conditions.grammar import parse_script
from thetastream.conditions.statement import Insert, Statement, View
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, raise_problems
from thetastream.families.options import StatementOptions, list_options, refuse_unknown, takes
from thetastream.joins.ask.arrow_tables import read_tables
from thetastream.joins.compose.lookups import leave_unstaged
from thetastream.models.base import Model, ModelName
from thetastream.spark.arguments import refuse_other_sessions
from thetastream.spark.changes import are_groups, is_changes
from thetastream.statements.evaluate import Evaluation, read_inputs
from thetastream.statements.order import find_order_problems

if TYPE_CHECKING:
    from thetastream.joins.ask.streams import Input


@takes(StatementOptions)
def sql(
    spark: SparkSession,
    text: str,
    streams: "Mapping[str, Input] | None" = None,
    model: Model | ModelName | None = None,
    **options: Unpack[StatementOptions],
) -> DataFrame:
    """Run a streaming SQL statement, or several with semicolons between them.

    Parameters
    ----------
    spark : SparkSession
    text : str
        ``[EXPLAIN] [CREATE VIEW name AS] [WITH ...] SELECT items FROM streams [WHERE ...] [WITHIN ...]
        [GROUP BY ... [HAVING ...]]``, with Spark SQL's expressions; docs/reference/sql.md has the grammar.
        All statements but the last must be CREATE VIEW.
    streams : mapping of name to DataFrame, optional
        The streams that FROM names. Other names are looked up as tables and views of the session. Case does
        not matter.
    model : Model or "auto", optional
        As in ``thetastream.join``. It holds for each join of the statements.
    **options
        They hold for each join of the statements. A clause OPTIONS at the end of a statement gives them too.

    Returns
    -------
    DataFrame
        The rows of the last statement. It is streaming if the inputs are. With GROUP BY it updates: write it
        in output mode ``update`` or ``complete``, or in ``append`` if it groups by a window of
        ``result_time``. With EXPLAIN, it has one row and one column ``plan``. CREATE VIEW returns the rows of
        the view.

    Raises
    ------
    QueryError
        The statement is wrong. The message has the line, the column, and a caret under the position. Several
        problems are listed at once. INSERT INTO is refused, because ``thetastream.insert`` runs it.
    SessionError
        NO_SESSION if ``spark`` is no session.

    Examples
    --------
    >>> import thetastream as th
    >>> th.sql(
    ...     spark,
    ...     "SELECT r.id, s.price FROM r, s WHERE r.price > s.price WITHIN 10 minutes",
    ...     streams={"r": trades, "s": quotes},
    ... )  # doctest: +SKIP

    The online dialect and its clauses follow BiStream (SIGMOD 2015), section 3.4.
    """
    refuse_other_sessions("th.sql", spark)
    statements = parse_script(text)
    head = statements[-1].head
    if isinstance(head, Insert) and not statements[-1].is_explain:
        what = "th.sql returns rows; th.insert(spark, text, ...) writes them into a sink"
        raise make_error_at(text, head.start, what, "INSERT")
    return run_script(spark, statements, streams, model, options)


class Explained(NamedTuple):
    """The last of several statements, which was explained."""

    rows: DataFrame
    """Its rows. They have columns, and must not run, because no table was staged for them."""
    plan: str


def explain(
    spark: SparkSession,
    statements: Sequence[Statement],
    streams: Mapping[str, Any] | None,
    model: Model | ModelName | None,
    options: Mapping[str, Any],
) -> Explained:
    """Explain the plan of the last statement. The others run, as in ``run_script``."""
    *before, last = statements
    rows, evaluation = _evaluate([*before, replace(last, is_explain=True)], spark, streams, model, options)
    return Explained(rows, _write_plan(evaluation))


def run_script(
    spark: SparkSession,
    statements: Sequence[Statement],
    streams: Mapping[str, Any] | None,
    model: Model | ModelName | None,
    options: Mapping[str, Any],
) -> DataFrame:
    """Run statements and return the rows of the last one; its INSERT INTO is left to the caller."""
    rows, evaluation = _evaluate(statements, spark, streams, model, options)
    if not statements[-1].is_explain:
        return rows
    return spark.createDataFrame([(_write_plan(evaluation),)], "plan string")


def _evaluate(
    statements: Sequence[Statement],
    spark: SparkSession,
    streams: Mapping[str, Any] | None,
    model: Model | ModelName | None,
    options: Mapping[str, Any],
) -> tuple[DataFrame, Evaluation]:
    """Evaluate statements, and make their views. Return the rows of the last one, and its evaluation."""
    raise_problems(list(find_order_problems(statements, options)))
    given = read_inputs(read_tables(streams or {}, spark))
    for statement in statements:
        evaluation = Evaluation(spark, given, model, join_options(statement, options))
        with leave_unstaged() if statement.is_explain else nullcontext():
            rows = evaluation.evaluate(statement.select, {})
        if evaluation.options.get("every") is not None and not evaluation.has_groups:
            what = "every delays the groups of a join, and this statement groups none"
            raise QueryError("EVERY", f"{what}; leave every={evaluation.options['every']!r} out")
        if statement.head is not None:
            rows = name_columns(statement.select.text, statement.head, rows)
        if isinstance(statement.head, View) and not statement.is_explain:
            _create_view(statement.select.text, statement.head, rows)
    return rows, evaluation


def _write_plan(evaluation: Evaluation) -> str:
    return "".join(explain() for explain in evaluation.explanations)


def join_options(statement: Statement, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a statement: those of its clause OPTIONS, and those that the caller gives."""
    twice = sorted(name for name in statement.options if given.get(name) is not None)
    if twice:
        what = f"{twice[0]} is in the clause OPTIONS, and the caller gives it too"
        raise QueryError("UNKNOWN_SETTING", f"{what} ({given[twice[0]]!r}); leave one of them out")
    refuse_unknown(statement.options, list_options(StatementOptions))
    return {**given, **statement.options}


def name_columns(text: str, head: View | Insert, rows: DataFrame) -> DataFrame:
    """Give rows the columns that a statement names, if it names any."""
    if not head.columns:
        return rows
    names = list(head.columns)
    has_change = is_changes(rows.schema) or are_groups(rows.schema)
    if has_change and rows.columns[-1] == CHANGE_TYPE != names[-1]:
        names.append(CHANGE_TYPE)
    if len(names) != len(rows.columns):
        what = f"{len(head.columns)} columns are named, but the SELECT has {len(rows.columns)}"
        raise make_error_at(text, head.start, what, "COLUMN_COUNT")
    return rows.toDF(*names)


def _create_view(text: str, view: View, rows: DataFrame) -> None:
    if view.is_replaced:
        rows.createOrReplaceTempView(view.name)
        return
    try:
        rows.createTempView(view.name)
    except AnalysisException:
        what = f"the session has a view {view.name!r}; write CREATE OR REPLACE VIEW, or another name"
        raise make_error_at(text, view.start, what, "VIEW_EXISTS") from None
