"""Chooses the model of a join of two streams: the one that the user named, or the cheapest."""

from thetastream.errors import raise_problems
from thetastream.frontend.shed import find_shed_problem
from thetastream.models.base import Model
from thetastream.plan.choose import ModelChoice, find_refusal
from thetastream.plan.lower import Lowered
from thetastream.plan.query import Query
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import build_workload
from thetastream.planners.join_settings import JoinSettings


def choose_model(query: Query, lowered: Lowered, settings: JoinSettings) -> tuple[Model, str]:
    """Return the model of the settings, or the cheapest model that can run the query, and the reason."""
    if settings.model is None:
        return build_choice(query, lowered, settings).explain(settings.partitions)
    problem = find_refusal(settings.model, lowered) or find_shed_problem(settings.shed, settings.model)
    raise_problems([] if problem is None else [problem])
    return settings.model, "as asked for"


def build_choice(query: Query, lowered: Lowered, settings: JoinSettings) -> ModelChoice:
    """Build the function from a number of shuffle partitions to the cheapest model for it."""
    work = build_workload(query, lowered, settings.statistics or Statistics())
    needs_probes_apart = settings.shed is not None and settings.shed.sheds_probes
    return ModelChoice(work, lowered, settings.order is not None, needs_probes_apart)
