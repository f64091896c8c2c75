"""Reads a join as the user asks for it: ``read_request`` makes the request that all families take.

Each reader returns a value and a list of problems, so that the user sees all problems together.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pyspark.sql import DataFrame

from thetastream.conditions.statement import HowOption
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import HOWS, INNER, How, Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.core.spans import Within
from thetastream.families.changes import answer_early, find_changes_problems, find_versions_problems
from thetastream.families.option_values import EARLY
from thetastream.families.options import OF_ORDER, SESSION_PREFIX, JoinOptions, Options, read_options
from thetastream.families.request import JoinRequest
from thetastream.families.windows import is_counted
from thetastream.joins.ask.beside_tables import fit_to_tables
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.condition import On, read_condition
from thetastream.joins.ask.model import read_model
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.ask.settings import find_unknown_aliases, read_result_time, read_run
from thetastream.joins.ask.shown import list_needed, read_shown
from thetastream.joins.ask.streams import list_tables, read_streams
from thetastream.joins.ask.validity import find_valid_from, write_validity
from thetastream.joins.ask.window import read_window
from thetastream.models.base import Model
from thetastream.models.replicated import Replicated
from thetastream.spark.session.configure import count_partitions, read_settings

Value = TypeVar("Value")


class _Problems(list[ThetastreamError]):
    """The problems of a request, which the user sees together."""

    def keep(self, read: tuple[Value, Iterable[ThetastreamError]]) -> Value:
        """Keep the problems that a reader has found, and return what it has read."""
        value, found = read
        self += found
        return value


def read_request(
    frames: Mapping[str, DataFrame],
    on: On,
    within: Within,
    model: Model | Replicated | str | None,
    options: Mapping[str, Any],
    *,
    how: HowOption = INNER.name,
    door: type = JoinOptions,
    columns: Mapping[str, Collection[str] | None] | None = None,
    has_result_time: bool = True,
    bounds_watermark: bool = False,
) -> JoinRequest:
    """Read a join of DataFrames.

    Parameters
    ----------
    frames : mapping of alias to DataFrame
        As ``read_frames`` returns them.
    on, within, model, how
        As in ``th.join``.
    options : mapping of name to value
        The options that the user gave, of those that ``door`` declares.
    columns : mapping of alias to collection of str, optional
        The columns that results need, in lower case. Without an entry, all columns are needed.
    has_result_time : bool
        Whether results may have a result time.
    bounds_watermark : bool
        As in ``JoinRequest``.

    Raises
    ------
    QueryError
        If ``how`` or a setting of the session does not exist, or a column name occurs twice. All other
        problems are in the request.
    """
    spark = next(iter(frames.values())).sparkSession
    # 1. Read the kind of the join and the options, and leave out what tables cannot have.
    kind, problems = read_how(how), _Problems()
    read_given = problems.keep(read_options(options, read_settings(spark, SESSION_PREFIX), door))
    tables = list_tables(frames)
    asked = problems.keep(fit_to_tables(list(frames), tables, within, model, read_given))
    within, given, chosen = asked.within, asked.given, asked.given.values
    # 2. Read the inputs and the condition.
    shown = problems.keep(read_shown(chosen.get("columns"), frames, kind))
    needed = {**(columns or {}), **list_needed(shown, on, kind, list(frames))}
    needs_time = within is not None or chosen.get("order") is not None
    read = read_streams(frames, tables, needs_time, chosen.get("event_time"), needed)
    timeless = asked.tables | {alias for alias in frames if find_valid_from(frames[alias]) is not None}
    streams = tuple(
        replace(stream, event_time=None) if stream.alias in timeless else stream for stream in read.streams
    )
    if chosen.get("outer") == EARLY:
        kind, streams = problems.keep(answer_early(kind, streams, "outer" in given.of_user))
    if not kind.is_inner or any(stream.change_type is not None for stream in streams):
        given = given.without(given.of_session.intersection(OF_ORDER))
        chosen = given.values
    condition = read_condition(on, read.catalyst, streams, read.schemas)
    valid = problems.keep(write_validity(frames, streams))
    problems += [*read.problems, *condition.problems]
    # 3. Read the window, the model and the settings of the units. They are for the inputs that units join.
    joined = [stream for stream in streams if stream.alias not in asked.tables]
    is_by_number = is_counted(within)
    within_us = None if is_by_number else problems.keep(read_window(within, joined, read.catalyst))
    archive_period_us = problems.keep(_read_archive_period(chosen, read.catalyst))
    statistics = chosen.get("statistics")
    if statistics is not None:
        problems += find_unknown_aliases(statistics, [stream.alias for stream in joined])
    if has_result_time:
        has_result_time = problems.keep(read_result_time(chosen.get("result_time"), joined))
    run = problems.keep(read_run(chosen, kind, joined, spark))
    partitions = count_partitions(spark)
    fitted = read_model(asked.model, joined, read.catalyst, partitions, is_by_number)
    if "objective" in given.of_user and not fitted.has_open_size:
        what = 'objective is what the number of nodes of th.Ring(nodes="auto") is chosen for'
        hint = f"the model is {asked.model!r}; leave objective out"
        problems.append(QueryError("OBJECTIVE", f"{what}, and {hint}"))
    request = JoinRequest(
        streams=streams,
        on=condition.on,
        conjuncts=(*condition.conjuncts, *valid),
        predicates=condition.predicates,
        within=within,
        within_us=within_us,
        how=kind.over_changes([side for side in Side if streams[side].change_type is not None]),
        model=fitted.model,
        has_open_size=fitted.has_open_size,
        given=given,
        statistics=statistics,
        archive_period_us=archive_period_us,
        has_result_time=has_result_time,
        run=run,
        partitions=partitions,
        resolver=read.catalyst,
        session=SparkSessionChecks(spark),
        problems=(*problems, *fitted.problems),
        bounds_watermark=bounds_watermark,
        keeps_spark_join=asked.keeps_spark_join,
        lookup_partitions=asked.lookup_partitions,
        shown=shown,
    )
    return request.with_problems([*find_changes_problems(request), *find_versions_problems(request)])


def _read_archive_period(chosen: Options, catalyst: Catalyst) -> tuple[int | None, list[QueryError]]:
    """Read the archive period in microseconds."""
    given = chosen.get("archive_period")
    try:
        return None if given is None else catalyst.duration(given, "archive_period"), []
    except QueryError as problem:
        return None, [problem]


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
