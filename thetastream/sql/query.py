"""``th.sql`` turns a statement into a join, and into a Spark SQL query over the results of the join.

SELECT ONLINE items FROM r, s WHERE c WITHIN w   ->   SELECT items FROM th.join({"r": .., "s": ..}, c, w)
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from thetastream.core.windows import Duration
from thetastream.errors import QueryError, ThetastreamError, list_problems, raise_problems
from thetastream.frontend.tables import read_tables
from thetastream.models.base import Model
from thetastream.order.spec import Asked
from thetastream.plan.domains import quoted
from thetastream.plan.statistics import Statistics
from thetastream.predicate import pointed, tokenize
from thetastream.spark.catalyst import braced, unlogged
from thetastream.sql.answer import answer, plan_question
from thetastream.sql.errors import locate, translate_refusal
from thetastream.sql.grammar import parse_statement
from thetastream.sql.question import Question
from thetastream.sql.statement import Source, Statement

if TYPE_CHECKING:
    from thetastream.frontend.tables import Table


def sql(
    spark: SparkSession,
    text: str,
    streams: "Mapping[str, Table] | None" = None,
    model: Model | str | None = None,
    *,
    index: str | None = None,
    archive_period: Duration | None = None,
    order: Asked = None,
    punctuations: bool | None = None,
    event_time: str | Mapping[str, str] | None = None,
    mailbox: str | None = None,
    cache_folder: str | None = None,
    late: str | Path | None = None,
    statistics: Statistics | None = None,
) -> DataFrame:
    """Run a streaming SQL statement.

    Parameters
    ----------
    spark : SparkSession
    text : str
        ``[EXPLAIN] SELECT ONLINE ... FROM ... [WHERE ...] [WITHIN ...] [GROUP BY ... [HAVING ...]]``, with
        Spark SQL's expressions; docs/reference/sql.md has the grammar.
    streams : mapping of name to DataFrame, optional
        The streams that FROM names. Other names are looked up as tables and views of the session. Case does
        not matter.
    model, index, archive_period, order, punctuations, event_time, mailbox, cache_folder, late, statistics
        As in ``thetastream.join``.

    Returns
    -------
    DataFrame
        It is streaming if the inputs are. With GROUP BY it updates: write it in output mode ``update`` or
        ``complete``, or in ``append`` if it groups by a window of ``result_time``. With EXPLAIN, it has one
        row and one column ``plan``.

    Raises
    ------
    QueryError
        The statement is wrong. The message has the line, the column, and a caret under the position. Several
        problems are listed at once.

    Examples
    --------
    >>> import thetastream as th
    >>> th.sql(
    ...     spark,
    ...     "SELECT ONLINE r.id, s.price FROM r, s WHERE r.price > s.price WITHIN 10 minutes",
    ...     streams={"r": trades, "s": quotes},
    ... )  # doctest: +SKIP

    The online dialect and its clauses follow BiStream (SIGMOD 2015), section 3.4.
    """
    settings = {
        "index": index,
        "archive_period": archive_period,
        "order": order,
        "punctuations": punctuations,
        "event_time": event_time,
        "mailbox": mailbox,
        "cache_folder": cache_folder,
        "late": late,
        "statistics": statistics,
    }
    statement = parse_statement(text)
    return _run(spark, statement, streams, model, settings, statement.is_explain)


def explain(
    spark: SparkSession,
    text: str,
    streams: Mapping[str, DataFrame] | None = None,
    model: Model | str | None = None,
) -> str:
    """Explain the plan of a statement; parameters and errors are those of ``sql``."""
    plan = _run(spark, parse_statement(text), streams, model, {}, is_explain=True)
    return str(plan.collect()[0][0])


def _run(
    spark: SparkSession,
    statement: Statement,
    streams: Mapping[str, Any] | None,
    model: Model | str | None,
    settings: Mapping[str, Any],
    is_explain: bool,
) -> DataFrame:
    """Answer a statement with its rows, or with its plan."""
    frames = _find_frames(spark, statement, read_tables(streams or {}, spark))
    on = [condition.text for condition in statement.conditions] or ["true"]
    question = Question(
        statement.selection, frames, on, statement.within, model, settings, is_explain=is_explain
    )
    try:
        join = plan_question(question)
    except ThetastreamError as error:
        raise_problems([locate(statement, problem) for problem in list_problems(error)])
        raise
    return answer(spark, question, join)


def _find_frames(
    spark: SparkSession, statement: Statement, streams: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """Find the inputs of a statement: alias -> DataFrame."""
    given: dict[str, DataFrame] = {}
    for name, frame in streams.items():
        if not isinstance(name, str) or not hasattr(frame, "isStreaming"):
            raise QueryError(
                "STREAMS",
                f"streams must map names to Spark DataFrames, not {name!r} to {type(frame).__name__}",
            )
        if name.casefold() in given:
            raise QueryError("DUPLICATE_ALIAS", f"names ignore case, and streams has {name!r} twice")
        given[name.casefold()] = frame
    frames: dict[str, DataFrame] = {}
    problems: list[ThetastreamError] = []
    for source in statement.sources:
        try:
            frames[source.alias] = _find_frame(spark, statement.text, source, given)
        except QueryError as problem:
            problems.append(problem)
    raise_problems(problems)
    return frames


def _find_frame(spark: SparkSession, text: str, source: Source, given: Mapping[str, DataFrame]) -> DataFrame:
    plain = "".join(token.name for token in tokenize(source.name))
    frame = given.get(plain.casefold())
    if frame is None:
        try:
            with unlogged():
                frame = spark.table(source.name)
                _ = frame.schema
        except PySparkException:
            names = f"the streams given ({', '.join(given)})" if given else "streams="
            what = f"{source.name!r} is neither one of {names} nor a table or view of the session"
            raise pointed(text, source.start, what, "UNKNOWN_STREAM") from None
    if source.items is None:
        return frame
    where = f" WHERE {braced(source.where.text)}" if source.where is not None else ""
    query = f"SELECT {braced(source.items.text)}\nFROM {{stream}} AS {quoted(source.inner)}{where}"
    try:
        with unlogged():
            frame = spark.sql(query, stream=frame)
            _ = frame.schema
        return frame
    except AnalysisException as error:
        phrases = [source.items, *([source.where] if source.where is not None else [])]
        raise translate_refusal(phrases, error) from None
