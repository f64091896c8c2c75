"""A question answered: a join of the streams, and the select list over it."""

from pyspark.sql import DataFrame, SparkSession

from thetastream.api import plan
from thetastream.binary import JoinPlan
from thetastream.cascade import CascadePlan
from thetastream.errors import QueryError, ThetastreamError
from thetastream.models import Model
from thetastream.multiway import RingPlan
from thetastream.plan.folding import NotFoldable
from thetastream.sql.folded import folded
from thetastream.sql.projection import names_in, projected, read_names
from thetastream.sql.question import Question
from thetastream.sql.select import refuse_endless, selected

Planned = tuple[JoinPlan | CascadePlan, dict[str, DataFrame]]


def plan_join(question: Question) -> Planned:
    """The join, over the columns that the question reads; problems have no place in the text yet."""
    model = question.model
    is_streaming = any(frame.isStreaming for frame in question.frames.values())
    if isinstance(model, Model) and is_streaming and not model.is_prompt(len(question.frames)):
        what = f"the watermark may have passed what {model!r} finds of {len(question.frames)} streams"
        raise QueryError("LATE_RESULTS", f"{what}: nothing can group by its time; use th.join, or no model")
    frames = {}
    for alias, frame in question.frames.items():
        shown, asked = read_names(question.statement.shown, alias), names_in(question.on, alias)
        frames[alias] = projected(frame, None if shown is None or asked is None else shown | asked)
    try:
        planned = plan(frames, question.on, question.within, question.model, **question.settings)
    except ThetastreamError:
        # Asked again with every column, for an error that knows them all.
        planned = plan(question.frames, question.on, question.within, question.model, **question.settings)
    assert not isinstance(planned, RingPlan)
    return planned, frames


def answer(spark: SparkSession, question: Question, join: Planned) -> DataFrame:
    """The select list over the join; over views of the units where they can fold it."""
    planned, frames = join
    statement = question.statement
    if any(frame.isStreaming for frame in frames.values()):
        refuse_endless(statement)
    rows, is_grouped = selected(spark, statement, planned, frames)
    how = ""
    if is_grouped:
        try:
            rows, planned, how = folded(spark, question, planned, frames, rows)
        except NotFoldable as reason:
            if question.every is not None:
                what = "every lets the views of units wait, and pairs leave these units"
                raise QueryError("EVERY", f"{what}: {reason}; leave every={question.every!r} out") from None
            how = f"pairs leave the units, Spark aggregates them   ({reason})"
        how = f"\n== Aggregation ==\n{how}\n"
    if statement.is_explain:
        return spark.createDataFrame([(planned.explain() + how,)], "plan string")
    return rows
