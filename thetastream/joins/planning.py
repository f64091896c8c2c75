"""Plans a join of any kind: with tables, by one family, by joins of two inputs, or Spark's own join."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from thetastream.families.registry import find_family
from thetastream.families.request import JoinRequest
from thetastream.joins.ask.streams import StreamInput
from thetastream.joins.compose.batches import plan_spark_join
from thetastream.joins.compose.pipeline import plan_pipeline
from thetastream.joins.compose.tables import plan_with_tables
from thetastream.joins.joined import Joined, UnitsJoin


def plan_join(request: JoinRequest, frames: Mapping[str, DataFrame]) -> Joined:
    """Plan the join of these DataFrames that a request asks for.

    Raises
    ------
    QueryError
        If the request has problems. ``InvalidQuery`` lists several.
    SessionError
        If the settings of the Spark session do not allow the join.
    """
    if request.has_tables:
        return plan_with_tables(request, frames, plan_join)
    if request.keeps_spark_join:
        return plan_spark_join(request, frames)
    family = find_family(request)
    if family is None:
        return plan_pipeline(request, frames)
    planned = family.plan(request.without(family.refused))
    return UnitsJoin(planned, tuple(StreamInput(frames[stream.alias]) for stream in planned.inputs))
