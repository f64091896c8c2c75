"""th.sql: a statement becomes a join, and a Spark SQL query over the join's result.

SELECT ONLINE items FROM r, s WHERE c WITHIN w   ->   SELECT items FROM th.join({"r": .., "s": ..}, c, w)
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from thetastream.api import plan
from thetastream.binary import JoinPlan
from thetastream.cascade import TIME, CascadePlan, result_time
from thetastream.errors import QueryError, ThetastreamError, problems_of, raise_problems
from thetastream.frontend.streams import MARK
from thetastream.models.base import Model
from thetastream.plan.domains import quoted
from thetastream.predicate import Phrase, pointed, tokenize
from thetastream.spark.catalyst import unlogged
from thetastream.sql.errors import located, refused
from thetastream.sql.grammar import parse_statement
from thetastream.sql.statement import Source, Statement


def sql(
    spark: SparkSession,
    text: str,
    streams: Mapping[str, DataFrame] | None = None,
    model: Model | None = None,
    **settings: Any,
) -> DataFrame:
    """Run a streaming SQL statement.

    Parameters
    ----------
    spark : SparkSession
    text : str
        ``[EXPLAIN] SELECT ONLINE ... FROM ... [WHERE ...] [WITHIN ...] [GROUP BY ... [HAVING ...]]``, with
        Spark SQL's expressions; docs/sql.md has the grammar.
    streams : mapping of name to DataFrame, optional
        What FROM names; other names are looked up as tables and views of the session. Names ignore case.
    model, **settings
        As for ``thetastream.join``.

    Returns
    -------
    DataFrame
        Streaming if the inputs are. With GROUP BY it updates: write it in output mode ``update`` or
        ``complete``, or ``append`` if it groups by a window of ``result_time``. With EXPLAIN, one row
        and one column ``plan``.

    Raises
    ------
    QueryError
        With line, column, and a caret under the place; several are listed at once.

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
    statement = parse_statement(text)
    whole = _frames(spark, statement, streams or {})
    frames = {alias: _projected(alias, frame, statement) for alias, frame in whole.items()}
    on = [condition.text for condition in statement.conditions] or ["true"]
    try:
        try:
            planned = plan(frames, on, statement.within, model, **settings)
        except ThetastreamError:
            # Asked again with every column, for an error that knows them all.
            planned = plan(whole, on, statement.within, model, **settings)
    except ThetastreamError as error:
        raise_problems([located(statement, problem) for problem in problems_of(error)])
        raise
    if statement.is_explain:
        return spark.createDataFrame([(planned.explain(),)], "plan string")
    return _selected(spark, statement, planned, frames)


# FROM


def _frames(
    spark: SparkSession, statement: Statement, streams: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The inputs by alias."""
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
            frames[source.alias] = _frame(spark, statement.text, source, given)
        except QueryError as problem:
            problems.append(problem)
    raise_problems(problems)
    return frames


def _frame(spark: SparkSession, text: str, source: Source, given: Mapping[str, DataFrame]) -> DataFrame:
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
    where = f" WHERE {_braced(source.where.text)}" if source.where is not None else ""
    query = f"SELECT {_braced(source.items.text)}\nFROM {{stream}} AS {quoted(source.inner)}{where}"
    try:
        with unlogged():
            frame = spark.sql(query, stream=frame)
            _ = frame.schema
        return frame
    except AnalysisException as error:
        phrases = [source.items, *([source.where] if source.where is not None else [])]
        raise refused(text, phrases, error) from None


def _projected(alias: str, frame: DataFrame, statement: Statement) -> DataFrame:
    """Only columns whose name is in the statement, and those that may be event time."""
    for phrase, n, token in _tokens(statement):
        if token.kind == "STAR" and _is_star(phrase, n):
            return frame
        if token.name.casefold() == alias.casefold() and not _is_dotted(phrase, n):
            return frame  # the stream as a whole, as in to_json(r)
    named = {token.name.casefold() for _, _, token in _tokens(statement)}
    kept = [
        field.name
        for field in frame.schema.fields
        if field.name.casefold() in named
        or MARK in (field.metadata or {})
        or (not frame.isStreaming and field.dataType.simpleString() in ("timestamp", "timestamp_ntz"))
    ]
    if not kept:
        kept = frame.columns[:1]  # a tuple of no columns would not be counted
    if len(set(map(str.casefold, kept))) < len(kept):
        return frame  # a name that is there twice is refused by name later
    return frame.select(*(F.col(quoted(name)) for name in kept))


def _tokens(statement: Statement) -> Iterator[tuple[Phrase, int, Any]]:
    for phrase in statement.phrases:
        for n, token in enumerate(phrase.tokens):
            yield phrase, n, token


def _is_dotted(phrase: Phrase, n: int) -> bool:
    return n + 1 < len(phrase.tokens) and phrase.tokens[n + 1].text == "."


def _is_star(phrase: Phrase, n: int) -> bool:
    """Whether the star at ``n`` stands for columns, as opposed to a product or count(*)."""
    before = phrase.tokens[n - 1] if n else None
    if before is None or before.text in (",", ".") or before.keyword == "DISTINCT":
        return True
    is_count = before.text == "(" and n > 1 and phrase.tokens[n - 2].keyword == "COUNT"
    return before.text == "(" and not is_count


# SELECT


def _selected(
    spark: SparkSession,
    statement: Statement,
    planned: JoinPlan | CascadePlan,
    frames: Mapping[str, DataFrame],
) -> DataFrame:
    rows = _with_names(planned, frames, statement)
    items = _stars(statement.text, statement.items, list(frames))
    _refuse_endless(statement, rows.isStreaming)
    query = f"SELECT {_braced(items)}\nFROM {{rows}}"
    if statement.group_by is not None:
        query += f"\nGROUP BY {_braced(statement.group_by.text)}"
    if statement.having is not None:
        query += f"\nHAVING {_braced(statement.having.text)}"
    is_bounded = statement.is_distinct and rows.isStreaming and statement.group_by is None
    if statement.is_distinct and not is_bounded:
        query = query.replace("SELECT", "SELECT DISTINCT", 1)
    elif is_bounded:
        if _DISTINCT_TIME not in rows.columns or statement.within is None:
            raise pointed(
                statement.text,
                statement.items.tokens[0].start,
                "DISTINCT over streams needs WITHIN: without a window it would remember every row for ever",
                "UNBOUNDED_DISTINCT",
            )
        query = query.replace("SELECT ", f"SELECT {_DISTINCT_TIME}, ", 1)
    phrases = [p for p in (statement.items, statement.group_by, statement.having) if p is not None]
    try:
        with unlogged():
            result = spark.sql(query, rows=rows)
            columns = result.columns
    except AnalysisException as error:
        raise refused(statement.text, phrases, error) from None
    if is_bounded:
        if len(set(columns)) < len(columns):
            raise pointed(
                statement.text,
                statement.items.tokens[0].start,
                f"DISTINCT needs columns of different names, they are {', '.join(columns[1:])}; use AS",
                "DUPLICATE_COLUMN",
            )
        result = result.dropDuplicatesWithinWatermark(columns[1:]).drop(_DISTINCT_TIME)
    return result


_DISTINCT_TIME = "__result_time"


def _with_names(
    planned: JoinPlan | CascadePlan, frames: Mapping[str, DataFrame], statement: Statement
) -> DataFrame:
    """Results with one struct per alias, every column that only one stream has, and ``result_time``.

    The mark of the watermark is put back on: a result is later than the watermark it is found under.
    """
    pairs = planned.dataframe()
    owners: dict[str, list[tuple[str, str]]] = {}
    for alias, frame in frames.items():
        for name in frame.columns:
            owners.setdefault(name.casefold(), []).append((alias, name))
    taken = {alias.casefold() for alias in frames}
    columns = [F.col(quoted(alias)) for alias in frames]
    has_time = len(planned.event_times) == len(frames)
    if has_time:
        taken.add(TIME)
    columns += [
        F.col(f"{quoted(found[0][0])}.{quoted(found[0][1])}").alias(found[0][1])
        for folded, found in owners.items()
        if len(found) == 1 and folded not in taken
    ]
    if has_time:
        times = [F.col(f"{quoted(alias)}.{quoted(time)}") for alias, time in planned.event_times.items()]
        if statement.is_distinct:
            columns.append(result_time(times, _longest_ms(planned)).alias(_DISTINCT_TIME))
        if TIME not in map(str.casefold, frames):
            columns.append(result_time(times, 0))
    return pairs.select(*columns)


def _longest_ms(planned: JoinPlan | CascadePlan) -> int:
    steps = (planned,) if isinstance(planned, JoinPlan) else planned.steps
    return max((-(-max(step.query.within_us) // 1000) for step in steps if step.query.within_us), default=0)


def _refuse_endless(statement: Statement, is_streaming: bool) -> None:
    """Raise for what Spark would only refuse once the query starts."""
    if not is_streaming:
        return
    tokens = statement.items.tokens
    for n, token in enumerate(tokens):
        if token.keyword == "OVER" and n + 1 < len(tokens) and tokens[n + 1].text == "(":
            what = "a window function needs an end of the stream"
            raise pointed(statement.text, token.start, what, "UNSUPPORTED_SQL")
    if statement.is_distinct and statement.group_by is not None:
        what = "DISTINCT over groups that still change has no answer; leave it out"
        raise pointed(statement.text, tokens[0].start, what, "UNSUPPORTED_SQL")


def _stars(whole: str, items: Phrase, aliases: Iterable[str]) -> str:
    """The select list with a bare ``*`` written out, stream by stream."""
    text, base = items.text, items.tokens[0].start
    every = ", ".join(f"{quoted(alias)}.*" for alias in aliases)
    for n in reversed(range(len(items.tokens))):
        token = items.tokens[n]
        if token.kind != "STAR" or not _is_star(items, n) or items.tokens[n - 1].text == ".":
            continue
        following = items.tokens[n + 1].keyword if n + 1 < len(items.tokens) else ""
        if n not in items.top or following == "EXCEPT":
            what = "a star stands alone, for all columns of all streams; or write alias.*"
            raise pointed(whole, token.start, what, "UNSUPPORTED_SQL")
        text = text[: token.start - base] + every + text[token.end - base :]
    return text


def _braced(text: str) -> str:
    """Text for ``spark.sql(..., name=frame)``, which reads braces as its own.

    The newline ends a comment that the user's text may end with.
    """
    return text.replace("{", "{{").replace("}", "}}") + "\n"
