"""Plans a join of any kind: with tables, by one family of joins, or as joins of two inputs."""

from thetastream.families.registry import find_family
from thetastream.joins.ask.check import ReadInputs, check, read_inputs
from thetastream.joins.ask.request import JoinRequest
from thetastream.joins.ask.streams import StreamInput
from thetastream.joins.compose.pipeline import plan_pipeline
from thetastream.joins.compose.tables import has_tables, plan_with_tables
from thetastream.joins.joined import Joined, UnitsJoin


def plan_join(request: JoinRequest) -> Joined:
    """Check a request, and plan it.

    Raises
    ------
    QueryError
        If the request has problems. ``InvalidQuery`` lists several.
    SessionError
        If the settings of the Spark session do not allow the join.
    """
    if has_tables(request.streams):
        return plan_with_tables(request, _plan_alike)
    return _plan_alike(request, read_inputs(request))


def _plan_alike(request: JoinRequest, read: ReadInputs) -> Joined:
    """Plan a join whose inputs are all streams, or all batch DataFrames."""
    checked = check(request, read)
    family = find_family(checked)
    if family is None:
        return plan_pipeline(checked, request)
    planned = family.plan(checked.without(family.refused))
    return UnitsJoin(planned, tuple(map(StreamInput, request.streams.values())))
