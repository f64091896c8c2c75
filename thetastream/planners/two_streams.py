"""Plans joins of two streams."""

from pyspark.sql import SparkSession

from thetastream.engine.order import read_order
from thetastream.errors import QueryError, raise_problems
from thetastream.frontend.checked import CheckedRequest
from thetastream.frontend.count_windows import read_count_windows, refuse_unordered
from thetastream.frontend.how import refuse_how
from thetastream.frontend.mailbox_folder import choose_mailbox_folder
from thetastream.frontend.max_units import check_max_units
from thetastream.frontend.window import is_counted
from thetastream.plan.choose import SizeChoice, choose_n_units, find_arrival_problem
from thetastream.plan.cost import estimate
from thetastream.plan.decide import find_decision_problems
from thetastream.plan.lower import lower
from thetastream.plan.query import Query, Resolver
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import build_workload
from thetastream.planners.join_plan import JoinPlan
from thetastream.planners.join_settings import JoinSettings
from thetastream.planners.model_choice import choose_model
from thetastream.planners.planned_input import GivenStream, PlannedInput
from thetastream.planners.residual_payload import carry_residual
from thetastream.spark.idle.reports import list_idle_reports
from thetastream.spark.memory import warn_of_state
from thetastream.spark.ordered import ARRIVAL
from thetastream.spark.session import check_session, is_local


def plan_two_streams(checked: CheckedRequest) -> JoinPlan:
    """Plan a join of two streams."""
    # 1. Read what only joins of two streams support: count windows and an order of results.
    request, options, problems = checked.request, checked.options, checked.problems
    counts = read_count_windows(checked)
    order = None
    try:
        order = read_order(options.get("order"), bool(options.get("punctuations")))
    except QueryError as problem:
        problems.append(problem)
    _refuse_by_arrival(checked, order is not None)
    if counts is not None:
        refuse_how(
            request.how, "a count window", 'use a window of event time, as in within="5 minutes"', problems
        )
    if order is not None:
        refuse_how(request.how, "an order of results", "leave order out", problems)
    # 2. Check the session.
    model, mailbox, max_units = checked.model, "", None
    if checked.is_streaming:
        n_units = choose_n_units(checked.partitions) if model is None else model.n_units
        problems += check_session(request.spark, n_units)
        max_units = options.get("max_units")
        check_max_units(max_units, model, problems)
        has_mailbox = model is not None and model.has_mailbox(2)
        if has_mailbox or checked.shed is not None or max_units is not None:
            mailbox = choose_mailbox_folder(request.spark, options.get("mailbox"), problems)
    elif model is not None:
        model = model.on_batch
    # 3. Plan the query.
    query = checked.query(counts)
    left, right = (GivenStream(frame) for frame in request.streams.values())
    chosen = JoinSettings(
        model,
        choose=SizeChoice(model) if checked.has_open_size and model is not None else None,
        index=options.get("index"),
        archive_period_us=checked.archive_period_us,
        order=order,
        partitions=checked.partitions,
        statistics=checked.statistics,
        cache_folder=checked.cache_folder,
        late=checked.late,
        shed=checked.shed,
        idle=list_idle_reports(checked.streams),
        mailbox=mailbox,
        max_units=max_units,
    )
    planned = plan_query(query, checked.catalyst, (left, right), chosen)
    if checked.is_streaming:
        _warn_of_memory(request.spark, planned)
    return planned


def _warn_of_memory(spark: SparkSession, planned: JoinPlan) -> None:
    """Warn if a local session has too little memory for the windows, whose size must be known."""
    known = planned.settings.statistics
    if planned.model.costs_by != "routes" or (known is None and planned.query.counts is None):
        return
    work = build_workload(planned.query, planned.lowered, known or Statistics())
    cost = estimate(planned.model, work, planned.settings.partitions)
    warn_of_state(cost.memory_bytes, is_local(spark))


def plan_query(
    query: Query, resolver: Resolver, inputs: tuple[PlannedInput, PlannedInput], settings: JoinSettings
) -> JoinPlan:
    """Plan a validated query over two inputs."""
    asked = {"index": settings.index, "archive_period_us": settings.archive_period_us}
    lowered = lower(query, resolver, asked)
    raise_problems(find_decision_problems(query, lowered))
    query, lowered = carry_residual(query, lowered, inputs)
    model, reason = choose_model(query, lowered, settings)
    return JoinPlan(query, lowered, model, reason, inputs, settings)


def _refuse_by_arrival(checked: CheckedRequest, is_ordered: bool) -> None:
    """Add errors for models without the order of arrival, and for what an order of results does not
    allow."""
    problems = checked.problems
    if checked.model is not None:
        unordered = find_arrival_problem(checked.model, is_counted(checked.request.within), is_ordered)
        problems += [] if unordered is None else [unordered]
    if is_ordered and ARRIVAL in (stream.alias.casefold() for stream in checked.streams):
        what = f"ordered results have a column {ARRIVAL!r}; rename the stream"
        problems.append(QueryError("INVALID_ALIAS", what))
    if is_ordered:
        refuse_unordered(checked)
