"""The select list over a join's result: names, stars, DISTINCT, groups."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from thetastream.binary import JoinPlan
from thetastream.cascade import TIME, CascadePlan, result_time
from thetastream.errors import QueryError
from thetastream.frontend.window import is_counted
from thetastream.plan.domains import quoted
from thetastream.predicate import Phrase, pointed
from thetastream.spark.catalyst import braced, unlogged
from thetastream.sql.errors import refused
from thetastream.sql.projection import is_star
from thetastream.sql.statement import Statement

DISTINCT_TIME = "__result_time"


class Selected(NamedTuple):
    """A select list's rows."""

    rows: DataFrame
    is_grouped: bool
    """Whether they are groups of results, and not results."""


def selected(
    spark: SparkSession,
    statement: Statement,
    planned: JoinPlan | CascadePlan,
    frames: Mapping[str, DataFrame],
) -> Selected:
    """The select list, with its groups, over the join's results."""
    rows = _with_names(planned, frames, statement)
    items = written_out(statement.text, statement.items, list(frames))
    query = f"SELECT {braced(items)}\nFROM {{rows}}"
    if statement.group_by is not None:
        query += f"\nGROUP BY {braced(statement.group_by.text)}"
    if statement.having is not None:
        query += f"\nHAVING {braced(statement.having.text)}"
    is_bounded = statement.is_distinct and rows.isStreaming and statement.group_by is None
    if statement.is_distinct and not is_bounded:
        query = query.replace("SELECT", "SELECT DISTINCT", 1)
    elif is_bounded:
        if DISTINCT_TIME not in rows.columns or statement.within is None or is_counted(statement.within):
            raise pointed(
                statement.text,
                statement.items.tokens[0].start,
                "DISTINCT over streams needs WITHIN a time: otherwise it would remember every row for ever",
                "UNBOUNDED_DISTINCT",
            )
        query = query.replace("SELECT ", f"SELECT {DISTINCT_TIME}, ", 1)
    try:
        with unlogged():
            result = spark.sql(query, rows=rows)
            columns = result.columns
    except AnalysisException as error:
        raise refused(statement.text, list(statement.shown), error) from None
    if is_bounded:
        if len(set(columns)) < len(columns):
            raise pointed(
                statement.text,
                statement.items.tokens[0].start,
                f"DISTINCT needs columns of different names, they are {', '.join(columns[1:])}; use AS",
                "DUPLICATE_COLUMN",
            )
        result = result.dropDuplicatesWithinWatermark(columns[1:]).drop(DISTINCT_TIME)
    return Selected(result, _is_grouped(spark, statement, items, rows))


def _is_grouped(spark: SparkSession, statement: Statement, items: str, rows: DataFrame) -> bool:
    """Whether there are groups: Spark knows its aggregates, and refuses a column that stands beside one."""
    if statement.group_by is not None or statement.having is not None:
        return True
    try:
        with unlogged():
            _ = spark.sql(
                f"SELECT {quoted(rows.columns[0])}, {braced(items)}\nFROM {{rows}}", rows=rows
            ).schema
    except AnalysisException as error:
        return (error.getCondition() or "").startswith("MISSING_GROUP_BY")
    return False


def _with_names(
    planned: JoinPlan | CascadePlan, frames: Mapping[str, DataFrame], statement: Statement
) -> DataFrame:
    """Results with one struct per alias, every column that only one stream has, and ``result_time``.

    The mark of the watermark is put back on: a result is later than the watermark it is found under.
    """
    if isinstance(planned, JoinPlan) and planned.order is not None and planned.order.is_punctuated:
        what = "punctuations are rows without tuples, and a select list takes them for results"
        raise QueryError("BAD_ORDER", f"{what}; leave punctuations out, or use th.join")
    pairs = planned.dataframe()
    owners: dict[str, list[tuple[str, str]]] = {}
    for alias, frame in frames.items():
        for name in frame.columns:
            owners.setdefault(name.casefold(), []).append((alias, name))
    taken = {name.casefold() for name in pairs.columns}
    columns = [F.col(quoted(name)) for name in pairs.columns]
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
            columns.append(result_time(times, _longest_ms(planned)).alias(DISTINCT_TIME))
        if TIME not in map(str.casefold, frames):
            columns.append(result_time(times, 0))
    return pairs.select(*columns)


def _longest_ms(planned: JoinPlan | CascadePlan) -> int:
    steps = (planned,) if isinstance(planned, JoinPlan) else planned.steps
    return max((-(-max(step.query.within_us) // 1000) for step in steps if step.query.within_us), default=0)


def refuse_endless(statement: Statement) -> None:
    """Raise for what Spark would refuse over streams, but only once the query starts."""
    tokens = statement.items.tokens
    for n, token in enumerate(tokens):
        if token.keyword == "OVER" and n + 1 < len(tokens) and tokens[n + 1].text == "(":
            what = "a window function needs an end of the stream"
            raise pointed(statement.text, token.start, what, "UNSUPPORTED_SQL")
    if statement.is_distinct and statement.group_by is not None:
        what = "DISTINCT over groups that still change has no answer; leave it out"
        raise pointed(statement.text, tokens[0].start, what, "UNSUPPORTED_SQL")


def written_out(whole: str, items: Phrase, aliases: Iterable[str]) -> str:
    """The select list with a bare ``*`` written out, stream by stream."""
    text, base = items.text, items.tokens[0].start
    every = ", ".join(f"{quoted(alias)}.*" for alias in aliases)
    for n in reversed(range(len(items.tokens))):
        token = items.tokens[n]
        if token.kind != "STAR" or not is_star(items, n) or items.tokens[n - 1].text == ".":
            continue
        following = items.tokens[n + 1].keyword if n + 1 < len(items.tokens) else ""
        if n not in items.top or following == "EXCEPT":
            what = "a star stands alone, for all columns of all streams; or write alias.*"
            raise pointed(whole, token.start, what, "UNSUPPORTED_SQL")
        text = text[: token.start - base] + every + text[token.end - base :]
    return text
