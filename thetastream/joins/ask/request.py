"""Reads a join as the user asks for it: ``read_request`` makes the request that all families take.

Each reader returns a value and a list of problems, so that the user sees all problems together.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from thetastream.conditions.statement import HowOption
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.core.how import HOWS, INNER, How, Nearest, find_nearest
from thetastream.core.sides import Side
from thetastream.core.spans import Within
from thetastream.families.changes import answer_early, find_changes_problems, find_versions_problems
from thetastream.families.options import EARLY, GivenOptions, JoinOptions, Options, read_options
from thetastream.families.request import JoinRequest
from thetastream.families.windows import is_counted
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.joins.ask.condition import On, read_condition
from thetastream.joins.ask.model import read_model
from thetastream.joins.ask.session import SparkSessionChecks
from thetastream.joins.ask.settings import find_unknown_aliases, read_result_time, read_run
from thetastream.joins.ask.shown import list_needed, read_shown
from thetastream.joins.ask.streams import read_streams
from thetastream.joins.ask.validity import find_valid_from, write_validity
from thetastream.joins.ask.window import read_window
from thetastream.models.base import AUTO, Model
from thetastream.models.replicated import Replicated, count_lookup_partitions
from thetastream.spark.session.configure import count_partitions

SPARK = "spark"
"""The value of ``model=`` that keeps Spark's own join of a stream with tables, or of two batch DataFrames."""


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
    # 1. Read the kind of the join and the options, and leave out what tables beside streams cannot have.
    kind = read_how(how)
    given, problems = read_options(options, spark.conf.getAll, door)
    tables = [alias for alias, frame in frames.items() if not frame.isStreaming]
    lookup_partitions = None
    if isinstance(model, Replicated) or len(tables) == len(frames) - 1:
        lookup_partitions = count_lookup_partitions(model)
    if isinstance(model, Replicated) and not tables:
        what = "th.Replicated() looks tuples up in a table, and no input is a batch DataFrame"
        problems.append(QueryError("MIXED_INPUTS", f"{what}; leave model out"))
    if isinstance(model, Replicated) or lookup_partitions is not None:
        model = None
    has_tables, keeps_spark_join = 0 < len(tables) < len(frames), False
    if has_tables:
        keeps_spark_join = model == SPARK
        asked = _read_beside_tables(list(frames), tables, within, model, given)
        within, model, given, problems = asked.within, asked.model, asked.given, [*problems, *asked.problems]
    elif model == SPARK and len(frames) == len(tables) == 2:
        keeps_spark_join, model = True, None
    if not tables and "table_cache" in given.of_user:
        what = "table_cache bounds the copies of tables, and no input is a batch DataFrame"
        problems.append(QueryError("BAD_VALUE", f"{what}; leave it out"))
    chosen = given.values
    # 2. Read the inputs and the condition.
    shown, found = read_shown(chosen.get("columns"), frames, kind)
    problems += found
    needed = {**(columns or {}), **list_needed(shown, on, kind, list(frames))}
    needs_time = within is not None or chosen.get("order") is not None
    read = read_streams(frames, needs_time, chosen.get("event_time"), needed)
    timeless = {alias for alias, frame in frames.items() if find_valid_from(frame) is not None}
    timeless |= set(tables) if has_tables else set()
    streams = tuple(
        replace(stream, event_time=None) if stream.alias in timeless else stream for stream in read.streams
    )
    if chosen.get("outer") == EARLY:
        kind, streams, found = answer_early(kind, streams, "outer" in given.of_user)
        problems += found
    condition = read_condition(on, read.catalyst, streams, read.schemas)
    valid, found = write_validity(frames, streams)
    problems += [*read.problems, *condition.problems, *found]
    # 3. Read the window, the model and the settings of the units. They are for the inputs that units join.
    joined = [stream for stream in streams if stream.is_streaming or not has_tables]
    within_us = None
    if not is_counted(within):
        within_us, found = read_window(within, joined, read.catalyst)
        problems += found
    archive_period_us, found = _read_archive_period(chosen, read.catalyst)
    problems += found
    statistics = chosen.get("statistics")
    if statistics is not None:
        problems += find_unknown_aliases(statistics, [stream.alias for stream in joined])
    if has_result_time:
        has_result_time, found = read_result_time(chosen.get("result_time"), joined)
        problems += found
    run, found = read_run(chosen, kind, joined, spark)
    problems += found
    partitions = count_partitions(spark)
    fitted = read_model(model, joined, read.catalyst, partitions, is_counted(within))
    if "objective" in given.of_user and not fitted.has_open_size:
        what = 'objective is what the number of nodes of th.Ring(nodes="auto") is chosen for'
        problems.append(QueryError("OBJECTIVE", f"{what}, and the model is {model!r}; leave objective out"))
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
        keeps_spark_join=keeps_spark_join,
        lookup_partitions=lookup_partitions,
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


OF_ONE_STREAM = frozenset({"columns", "event_time", "result_time", "mailbox", "cache_folder", "table_cache"})
"""The options of the lookup of one stream in tables. All others are for units that join streams."""
OF_ORDER = ("order", "punctuations")
"""The options that no join with tables can honour."""


class _BesideTables(NamedTuple):
    """What a join of streams with tables can have of the user's request."""

    within: Within
    model: Model | str | None
    given: GivenOptions
    problems: list[ThetastreamError]


def _read_beside_tables(
    aliases: Sequence[str],
    tables: Sequence[str],
    within: Within,
    model: Model | str | None,
    given: GivenOptions,
) -> _BesideTables:
    """Leave out what a join of streams with tables cannot have, and list what the user gave of it.

    A table has no window, because it is whole in every epoch, and no state. A single stream joins no other.
    """
    streams, names = [alias for alias in aliases if alias not in tables], ", ".join(tables)
    problems: list[ThetastreamError] = []
    unordered = [name for name in OF_ORDER if name in given.of_user and given.values.get(name)]
    if unordered:
        what = f"results have no order behind the join with {names}"
        problems.append(QueryError("ORDER", f"{what}; leave {' and '.join(unordered)} out"))
    if len(streams) == 1:
        asked = {"within": within, "model": model, **given.values}
        unfit = [
            name
            for name, value in asked.items()
            if name not in {*OF_ONE_STREAM, *OF_ORDER, *given.of_session} and value not in (None, AUTO, SPARK)
        ]
        if unfit:
            what = f"{', '.join(unfit)} needs two streams, but only {streams[0]} is one"
            why = f"{names}: tables have no window and no state"
            problems.append(QueryError("MIXED_INPUTS", f"{what} ({why}); leave it out"))
        kept = given.without(given.values.keys() - OF_ONE_STREAM)
        return _BesideTables(None, None, kept, problems)
    if isinstance(within, Mapping):
        known = {alias.casefold() for alias in tables}
        named = [alias for alias in within if str(alias).casefold() in known]
        if named:
            what = f"within names {', '.join(named)}, which is a table: it is whole in every epoch"
            problems.append(QueryError("MIXED_INPUTS", f"{what}; name streams only"))
        within = {alias: window for alias, window in within.items() if alias not in named}
    return _BesideTables(within, None if model == SPARK else model, given.without(OF_ORDER), problems)


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
