"""Groups over views: units fold their matches, Spark merges what they folded (BiStream 3.4.2)."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from thetastream.api import plan
from thetastream.binary import JoinPlan
from thetastream.cascade import TIME as RESULT_TIME
from thetastream.cascade import CascadePlan
from thetastream.errors import SessionError
from thetastream.frontend.every import read_every
from thetastream.frontend.streams import MARK
from thetastream.plan.domains import quoted
from thetastream.plan.folding import PREFIX, TIME, Folding, NotFoldable, plan_folding
from thetastream.predicate import tokenize
from thetastream.spark.catalyst import Catalyst, braced, unlogged
from thetastream.sql.projection import names_in, projected
from thetastream.sql.question import Question
from thetastream.sql.select import written_out

NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_PLAIN = f"{PREFIX}plain"
_HAVING = f"{PREFIX}having"


class Folded(NamedTuple):
    """Merged views."""

    rows: DataFrame
    planned: JoinPlan
    how: str


def folded(
    spark: SparkSession,
    question: Question,
    planned: JoinPlan | CascadePlan,
    frames: Mapping[str, DataFrame],
    over_pairs: DataFrame,
) -> Folded:
    """The answer over views; columns and types are those of the answer ``over_pairs``.

    Raises
    ------
    NotFoldable
        If the matches themselves are needed.
    """
    statement = question.statement
    if not isinstance(planned, JoinPlan):
        raise NotFoldable("a join of three streams and more is not folded")
    if planned.physical.residual:
        raise NotFoldable(f"{planned.physical.residual[0]} is evaluated behind the units")
    if statement.is_distinct:
        raise NotFoldable("DISTINCT compares rows")
    times = {frames[alias].schema[time].dataType for alias, time in planned.event_times.items()}
    # 1. What units fold.
    catalyst = Catalyst(spark, {alias: frame.schema for alias, frame in frames.items()})
    has_time = len(planned.event_times) == len(frames)
    folding = plan_folding(
        tokenize(written_out(statement.text, statement.items, list(frames))),
        statement.group_by,
        statement.having,
        planned.query.streams,
        catalyst,
        RESULT_TIME if has_time else None,
    )
    if folding.pane is not None and len(times) > 1:
        raise NotFoldable("event times have two types")
    if question.every is not None:
        folding.lazy = read_every(question.every, planned.query.streams, folding.pane is not None, catalyst)
    if folding.lazy is not None and spark.conf.get(NO_DATA_BATCHES, "true") != "true":
        raise SessionError("NO_DATA_BATCHES", f"{NO_DATA_BATCHES} must be true, or views would wait for ever")
    # 2. The join that folds it, over columns computed before.
    try:
        with unlogged():
            streams = {alias: _computed(question, alias, frame, folding) for alias, frame in frames.items()}
    except AnalysisException as error:
        raise NotFoldable(f"units cannot compute it: {error.getCondition()}") from None
    settings = dict(question.settings)
    if not over_pairs.isStreaming:
        settings["event_time"] = planned.event_times
    join = plan(streams, question.on, question.within, question.model, **settings)
    assert isinstance(join, JoinPlan)
    views = join.dataframe(folding)
    if folding.pane is not None:
        views = views.withColumn(TIME, F.col(TIME).alias(TIME, metadata={MARK: 0}))
    # 3. The text over merged views.
    try:
        with unlogged():
            rows = _answered(spark, folding, views)
            types = [field.dataType for field in rows.schema]
    except AnalysisException as error:
        names = (error.getMessageParameters() or {}).get("objectName", "")
        raise NotFoldable(f"{names or error.getCondition()} is no group and no measure") from None
    if types != [field.dataType for field in over_pairs.schema]:
        raise NotFoldable("merged views have other types")
    how = f"units fold {folding.describe()}; Spark merges their views"
    if folding.lazy is not None:
        how += f", which wait while the watermark moves by {question.every}"
    return Folded(rows.toDF(*over_pairs.columns), join, how)


def _answered(spark: SparkSession, folding: Folding, views: DataFrame) -> DataFrame:
    """The select list and HAVING over the merged views."""
    keys = [f"{sql} AS {quoted(name)}" for sql, name in folding.keys]
    merges = [f"{sql} AS {quoted(name)}" for sql, name in folding.merges.items()]
    # A column outside any aggregate: Spark then refuses a select list that holds one.
    merged = f"SELECT {', '.join([*keys, *merges, f'1 AS {_PLAIN}'])}\nFROM {{views}}"
    if keys:
        merged += f"\nGROUP BY {', '.join(sql for sql, _ in folding.keys)}"
    # HAVING may name what the select list names.
    having = braced(folding.having) if folding.having else "true"
    query = f"SELECT {_PLAIN}, {braced(folding.items)}, ({having}) AS {_HAVING}\nFROM {{merged}}"
    rows = spark.sql(query, merged=spark.sql(merged, views=views))
    return rows.where(F.col(_HAVING)).drop(_PLAIN, _HAVING)


def _computed(question: Question, alias: str, frame: DataFrame, folding: Folding) -> DataFrame:
    """The columns that the condition reads, and those that units fold."""
    if any(name.startswith(PREFIX) for name in frame.columns):
        raise NotFoldable(f"{alias} has columns that start with {PREFIX}")
    names = names_in(question.on, alias)
    if names is None:
        raise NotFoldable(f"the condition reads all columns of {alias}")
    narrow = projected(frame, names).columns
    # Any metadata takes the mark of the watermark off a copy of the event time.
    made = [
        F.expr(column.text).alias(column.name, metadata={"thetastream": "computed"})
        for column in folding.computed
        if column.alias == alias
    ]
    named = frame.alias(alias)
    return named.select(*(F.col(quoted(name)) for name in narrow), *made)
