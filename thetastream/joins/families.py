"""Planners turn a checked request into a plan. The model of the request names its planner.

To add a planner, write one file and add one entry to ``PLANNERS`` under the name that ``Model.planner``
returns.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from thetastream.core.errors import QueryError, raise_problems
from thetastream.families.asked import CheckedRequest, JoinRequest
from thetastream.families.hops.plan import check_multiway, plan_multiway
from thetastream.families.pairs.plan import plan_two_streams
from thetastream.joins.ask.request import check
from thetastream.joins.compose.pipeline import plan_pipeline
from thetastream.joins.compose.tables import has_tables, plan_with_tables
from thetastream.joins.plan import Plan
from thetastream.models.base import MULTIWAY, PIPELINE, TWO_STREAMS, usual_planner


class Planner(NamedTuple):
    """A planner, and the options that it cannot honour."""

    plan: Callable[[CheckedRequest], Plan]
    ignored: frozenset[str] = frozenset()
    """If the user gives such an option, the planner refuses it. A default of the session is left out."""


def _plan_hops(checked: CheckedRequest) -> Plan:
    """Plan a join hop by hop. For batch DataFrames in a time window, plan joins of two streams instead."""
    counts = check_multiway(checked)
    if checked.is_streaming or counts is not None:
        return plan_multiway(checked, counts)
    raise_problems(checked.problems)
    model = None if checked.model is None else checked.model.on_batch
    alike = replace(checked, model=model).without_defaults({"max_units"})
    return plan_two_streams(alike) if len(checked.streams) == 2 else plan_pipeline(alike)


PLANNERS: dict[str, Planner] = {
    TWO_STREAMS: Planner(plan_two_streams),
    PIPELINE: Planner(plan_pipeline, frozenset({"order", "punctuations", "max_units"})),
    MULTIWAY: Planner(_plan_hops, frozenset({"index"})),
}


def plan_join(request: JoinRequest) -> Plan:
    """Check a request, and plan it with the planner that its model names.

    Raises
    ------
    QueryError
        If the request has problems. ``InvalidQuery`` lists several.
    SessionError
        If the settings of the Spark session do not allow the join.
    """
    if has_tables(request.streams):
        return plan_with_tables(request, plan_join)
    checked = check(request)
    n_streams, model = len(checked.streams), checked.model
    name = usual_planner(n_streams) if model is None else model.planner(n_streams)
    if name not in PLANNERS:
        raise QueryError(
            "UNKNOWN_PLANNER", f"{model!r} names the planner {name!r}, not {', '.join(PLANNERS)}"
        )
    planner = PLANNERS[name]
    unused = planner.ignored | ({"order", "punctuations"} if n_streams > 2 else frozenset())
    return planner.plan(checked.without_defaults(unused))
