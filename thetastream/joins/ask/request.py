"""A join request of the user, with the session's defaults for options that the user left out.

Reads and checks a join request for any number of streams. All planners share this code.

Reads ``how=``: whether a join answers in pairs, or once for each tuple of a preserved stream.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from thetastream.conditions import Predicate
from thetastream.conditions.statement import HowOption
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import HOWS, INNER, How, Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.core.spans import Within
from thetastream.families.asked import CheckedRequest, JoinRequest, On
from thetastream.families.options import JoinOptions, read_options
from thetastream.families.windows import is_counted
from thetastream.joins.ask.condition import read_condition
from thetastream.joins.ask.model import choose_named_model, read_model
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.ask.settings import read_late_folder, read_result_time, read_shed
from thetastream.joins.ask.statistics import read_statistics
from thetastream.joins.ask.streams import StreamInput, check_streams, read_streams, read_tables
from thetastream.joins.ask.window import read_window
from thetastream.models.base import Model
from thetastream.runtime.context import RunContext
from thetastream.runtime.idle.reports import list_idle_reports
from thetastream.spark.session.configure import count_partitions


def complete_request(
    streams: Mapping[str, Any],
    on: On,
    within: Within,
    model: Model | str | None,
    options: Mapping[str, Any],
    columns: Mapping[str, Collection[str] | None] | None = None,
    how: HowOption = INNER.name,
    door: type = JoinOptions,
) -> JoinRequest:
    """Check the streams, read the options and return the request. ``door`` declares the options.

    It raises what ``check_streams``, ``read_how`` and ``read_defaults`` raise.
    """
    streams = read_tables(streams)
    check_streams(streams)
    kind, needed = read_how(how), dict(columns or {})
    problems: list[ThetastreamError] = []
    given = read_options(options, next(iter(streams.values())).sparkSession.conf.getAll, door, problems)
    for side in Side:
        if side not in kind.shown and side < len(streams):
            alias = list(streams)[side]
            needed[alias] = _list_read(on, alias)
    return JoinRequest(streams, on, within, model, given, kind, needed, problems=tuple(problems))


def _list_read(on: On, alias: str) -> set[str]:
    """List the columns of a stream that Python predicates read. Keys of SQL conditions are sent anyway."""
    items = on if isinstance(on, Sequence) and not isinstance(on, str) else [on]
    return {
        name.casefold()
        for item in items
        if isinstance(item, Predicate)
        for named, names in item.columns
        if named.casefold() == alias.casefold()
        for name in names
    }


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
    model, has_open_size = read_model(named, read.streams, read.catalyst, partitions, problems)
    return CheckedRequest(
        request,
        read.catalyst,
        read.schemas,
        read.streams,
        tuple(texts),
        tuple(phrases),
        tuple(predicates),
        within_us,
        model,
        has_open_size,
        statistics,
        archive_period_us,
        has_result_time,
        run,
        partitions,
        problems,
        tuple(map(StreamInput, request.streams.values())),
        SparkSessionChecks(spark),
    )


_OTHER_NAMES = {
    "cross": "inner",
    "leftouter": "left",
    "rightouter": "right",
    "outer": "full",
    "fullouter": "full",
    "leftsemi": "semi",
    "leftanti": "anti",
}
"""The other names that Spark's batch joins accept, without underscores and blanks."""


def read_how(given: HowOption) -> How:
    """Return the kind of join that ``how=`` names, as Spark's batch joins name them.

    >>> read_how("left_outer").name
    'left'

    Raises
    ------
    QueryError
        HOW if there is no such kind.
    """
    if isinstance(given, Nearest):
        return find_nearest(given)
    folded = given.casefold().replace("_", "").replace(" ", "") if isinstance(given, str) else ""
    how = HOWS.get(_OTHER_NAMES.get(folded, folded))
    if how is None:
        raise QueryError(
            "HOW", f"how must be one of {', '.join(HOWS)} or th.Nearest(k, by=...), not {given!r}"
        )
    return how
