"""Evaluates the select list over the results of a join: names, stars, DISTINCT, groups."""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from thetastream.errors import QueryError
from thetastream.frontend.streams import MARK
from thetastream.frontend.window import is_counted
from thetastream.plan.domains import quoted
from thetastream.plan.query import RESULT_TIME
from thetastream.planners import Plan
from thetastream.planners.result_time import latest
from thetastream.predicate import Phrase, pointed
from thetastream.spark.catalyst import braced, unlogged
from thetastream.sql.errors import translate_refusal
from thetastream.sql.projection import is_star
from thetastream.sql.question import Question, Selection

DISTINCT_TIME = "__result_time"


class Selected(NamedTuple):
    """The rows of a select list."""

    rows: DataFrame
    is_grouped: bool
    """Whether rows are groups of results, and not single results."""


def select_rows(spark: SparkSession, question: Question, join: Plan) -> Selected:
    """Evaluate the select list and its groups over the results of the join."""
    selection = question.selection
    rows = _add_names(join, selection.is_distinct)
    items = write_out_stars(selection.items, join.aliases)
    query = f"SELECT {braced(items)}\nFROM {{rows}}"
    if selection.group_by is not None:
        query += f"\nGROUP BY {braced(selection.group_by.text)}"
    if selection.having is not None:
        query += f"\nHAVING {braced(selection.having.text)}"
    is_bounded = selection.is_distinct and rows.isStreaming and selection.group_by is None
    if selection.is_distinct and not is_bounded:
        query = query.replace("SELECT", "SELECT DISTINCT", 1)
    elif is_bounded:
        if DISTINCT_TIME not in rows.columns or question.within is None or is_counted(question.within):
            what = "DISTINCT over streams needs WITHIN a time: otherwise it would keep every row forever"
            raise _refuse_list(selection, what, "UNBOUNDED_DISTINCT")
        query = query.replace("SELECT ", f"SELECT {DISTINCT_TIME}, ", 1)
    try:
        with unlogged():
            result = spark.sql(query, rows=rows)
            columns = result.columns
    except AnalysisException as error:
        raise translate_refusal(selection.phrases, error) from None
    if is_bounded:
        if len(set(columns)) < len(columns):
            what = f"DISTINCT needs columns of different names, they are {', '.join(columns[1:])}; use AS"
            raise _refuse_list(selection, what, "DUPLICATE_COLUMN")
        result = result.dropDuplicatesWithinWatermark(columns[1:]).drop(DISTINCT_TIME)
    return Selected(result, _is_grouped(spark, selection, items, rows))


def _is_grouped(spark: SparkSession, selection: Selection, items: str, rows: DataFrame) -> bool:
    """Whether a select list makes groups.

    Without GROUP BY and HAVING, Spark decides this: it refuses a plain column beside an aggregate.
    """
    if selection.group_by is not None or selection.having is not None:
        return True
    try:
        with unlogged():
            _ = spark.sql(
                f"SELECT {quoted(rows.columns[0])}, {braced(items)}\nFROM {{rows}}", rows=rows
            ).schema
    except AnalysisException as error:
        return (error.getCondition() or "").startswith("MISSING_GROUP_BY")
    return False


def _refuse_list(selection: Selection, what: str, condition: str) -> QueryError:
    """Make an error that points at the select list."""
    return pointed(selection.items.source, selection.items.tokens[0].start, what, condition)


def _add_names(join: Plan, is_distinct: bool) -> DataFrame:
    """Add to results every column that only one stream has, and ``result_time``.

    ``result_time`` carries the mark of the watermark again, because a result is never older than the
    watermark at which it is found.
    """
    if join.is_punctuated:
        what = "punctuations are rows without tuples, and a select list would treat them as results"
        raise QueryError("BAD_ORDER", f"{what}; leave punctuations out, or use th.join")
    pairs = join.results()
    owners: dict[str, list[tuple[str, str]]] = {}
    for stream in join.inputs:
        for name, _ in stream.types:
            owners.setdefault(name.casefold(), []).append((stream.alias, name))
    taken = {name.casefold() for name in pairs.columns}
    columns = [F.col(quoted(name)) for name in pairs.columns]
    has_time = all(stream.event_time for stream in join.timed)
    if has_time:
        taken.add(RESULT_TIME)
    columns += [
        F.col(f"{quoted(found[0][0])}.{quoted(found[0][1])}").alias(found[0][1])
        for folded, found in owners.items()
        if len(found) == 1 and folded not in taken
    ]
    if has_time:
        times = [F.col(f"{quoted(s.alias)}.{quoted(str(s.event_time))}") for s in join.timed]
        if is_distinct:
            longest_ms = -(-join.longest_window_us // 1000)
            columns.append(latest(times, {MARK: longest_ms}).alias(DISTINCT_TIME))
        if RESULT_TIME not in map(str.casefold, join.aliases):
            columns.append(latest(times, {MARK: 0}))
    return pairs.select(*columns)


def refuse_endless(selection: Selection) -> None:
    """Raise an error for expressions that Spark would refuse over streams, but only when the query starts."""
    tokens, text = selection.items.tokens, selection.items.source
    for n, token in enumerate(tokens):
        if token.keyword == "OVER" and n + 1 < len(tokens) and tokens[n + 1].text == "(":
            what = "a window function needs a stream that ends"
            raise pointed(text, token.start, what, "UNSUPPORTED_SQL")
    if selection.is_distinct and selection.group_by is not None:
        what = "DISTINCT is not possible over groups that still change; leave it out"
        raise pointed(text, tokens[0].start, what, "UNSUPPORTED_SQL")


def write_out_stars(items: Phrase, aliases: Iterable[str]) -> str:
    """Write a select list with ``alias.*`` for every stream in place of a bare ``*``."""
    text, base = items.text, items.tokens[0].start
    every = ", ".join(f"{quoted(alias)}.*" for alias in aliases)
    for n in reversed(range(len(items.tokens))):
        token = items.tokens[n]
        if token.kind != "STAR" or not is_star(items, n) or items.tokens[n - 1].text == ".":
            continue
        following = items.tokens[n + 1].keyword if n + 1 < len(items.tokens) else ""
        if n not in items.top or following == "EXCEPT":
            what = "a star stands alone, for all columns of all streams; or write alias.*"
            raise pointed(items.source, token.start, what, "UNSUPPORTED_SQL")
        text = text[: token.start - base] + every + text[token.end - base :]
    return text
