"""Reads and checks a join request for any number of streams. All families share this code."""

from thetastream.core.errors import QueryError
from thetastream.families.request import CheckedRequest
from thetastream.families.windows import is_counted
from thetastream.joins.ask.condition import read_condition
from thetastream.joins.ask.model import choose_named_model, read_model
from thetastream.joins.ask.request import JoinRequest
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.ask.settings import read_late_folder, read_result_time, read_shed
from thetastream.joins.ask.statistics import read_statistics
from thetastream.joins.ask.streams import read_streams
from thetastream.joins.ask.window import read_window
from thetastream.runtime.context import RunContext
from thetastream.runtime.idle.reports import list_idle_reports
from thetastream.spark.session.configure import count_partitions


def check(request: JoinRequest) -> CheckedRequest:
    """Read streams, condition, window, model and options, and collect all errors in ``problems``."""
    problems = list(request.problems)
    options, spark = request.options, request.spark
    # 1. Streams, condition, window.
    needs_time = request.within is not None or options.get("order") is not None
    read = read_streams(request.streams, needs_time, options.get("event_time"), request.columns)
    problems += read.problems
    texts, phrases, predicates = read_condition(
        request.on, read.catalyst, read.streams, read.schemas, problems
    )
    within_us = None
    if not is_counted(request.within):
        within_us = read_window(request.within, read.streams, read.catalyst, problems)
    # 2. Options that every planner reads.
    archive_period_us = None
    try:
        if "archive_period" in options:
            archive_period_us = read.catalyst.duration(options["archive_period"], "archive_period")
    except QueryError as problem:
        problems.append(problem)
    statistics = read_statistics(options.get("statistics"), request.streams, problems)
    has_result_time = read_result_time(options.get("result_time"), read.streams, problems)
    late = read_late_folder(spark, options.get("late"), (stream.alias for stream in read.streams), problems)
    shed = read_shed(options.get("shed"), request.how, read.streams, problems)
    cache_folder = options.get("cache_folder")
    run = RunContext(
        cache_folder=None if cache_folder is None else str(cache_folder),
        late=late,
        idle=list_idle_reports(read.streams),
        shed=shed,
    )
    # 3. Model.
    partitions = count_partitions(spark)
    named = choose_named_model(request.model, len(read.streams), is_counted(request.within))
    model, has_open_size = read_model(
        named, read.streams, read.catalyst, partitions, is_counted(request.within), problems
    )
    return CheckedRequest(
        streams=read.streams,
        on=tuple(texts),
        conjuncts=tuple(phrases),
        predicates=tuple(predicates),
        within=request.within,
        within_us=within_us,
        how=request.how,
        model=model,
        has_open_size=has_open_size,
        given=request.given,
        statistics=statistics,
        archive_period_us=archive_period_us,
        has_result_time=has_result_time,
        run=run,
        partitions=partitions,
        resolver=read.catalyst,
        session=SparkSessionChecks(spark),
        problems=problems,
    )
