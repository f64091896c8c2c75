"""Reads options that can only be read together with the streams or the session of a request.

``late`` is a folder that all executors must reach. ``shed`` needs an inner join. ``result_time`` needs an
event time of each stream. ``statistics`` name streams.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from thetastream.core.errors import QueryError
from thetastream.core.folder import is_uri
from thetastream.core.how import How
from thetastream.core.shed import LAG, Shed
from thetastream.families.options import Options
from thetastream.lowering.query import RESULT_TIME, Stream
from thetastream.lowering.statistics import Statistics
from thetastream.runtime.flow import RunContext
from thetastream.runtime.idle_reports import list_idle_reports
from thetastream.spark.session.configure import is_local

_COLUMNS = ("alias", "query", "epoch")
"""The columns of late tuples beside those of the streams."""


def read_run(
    options: Options, how: How, streams: Sequence[Stream], spark: SparkSession
) -> tuple[RunContext, list[QueryError]]:
    """Read the settings with which the units of these streams run, and list what is wrong with them.

    The folder of mailboxes and ``max_units`` follow when the family knows what its units need.
    """
    shed = options.get("shed")
    problems = [] if shed is None else list(_find_shed_problems(shed, how, streams))
    late, found = read_late_folder(spark, options.get("late"), [stream.alias for stream in streams])
    cache_folder = options.get("cache_folder")
    run = RunContext(
        cache_folder=None if cache_folder is None else str(cache_folder),
        late=late,
        idle=list_idle_reports(streams),
        shed=shed,
    )
    return run, [*found, *problems]


def read_late_folder(
    spark: SparkSession, asked: str | Path | None, aliases: Collection[str]
) -> tuple[str | None, list[QueryError]]:
    """Read the folder of late tuples as an absolute path or URI, and list what is wrong with it.

    It is None if late tuples are not kept. Units write into the folder, so on a cluster it must be a URI that
    all executors reach.
    """
    if asked is None:
        return None, []
    folder, problems = str(asked), []
    taken = [alias for alias in aliases if alias.casefold() in _COLUMNS]
    if taken:
        what = f"files of late tuples have columns {', '.join(_COLUMNS)} of their own"
        problems.append(QueryError("INVALID_ALIAS", f"{what}; rename the stream {taken[0]!r}"))
    if is_uri(folder):
        return folder, problems
    if not is_local(spark):
        what = f"late must be a folder that all executors reach, as a URI, not {folder}"
        problems.append(QueryError("LATE_FOLDER", f'{what}; give late="hdfs://..." or "file:/shared/..."'))
    return os.path.abspath(folder), problems


def _find_shed_problems(shed: Shed, how: How, streams: Sequence[Stream]) -> Iterator[QueryError]:
    """Find reasons why a join cannot shed load.

    Joins that answer each tuple are refused. Otherwise a row without partners could appear although a partner
    has been dropped.
    """
    if not how.is_inner:
        yield QueryError(
            "SHED",
            f"how={how.name!r} answers each tuple, and a shedder may drop the partners of a tuple; "
            'leave shed out, or use how="inner"',
        )
    timeless = [stream.alias for stream in streams if stream.event_time is None]
    if shed.load == LAG and timeless:
        yield QueryError(
            "SHED",
            f'load="lag" compares event times with the clock, and {", ".join(timeless)} has none; call '
            '.withWatermark("column", "delay") on it, or use load="state"',
        )


def read_result_time(setting: bool | None, streams: Sequence[Stream]) -> tuple[bool, list[QueryError]]:
    """Read whether results have the column ``result_time``, and list what forbids it.

    They have it unless the option is false or a stream has no event time.
    """
    if setting is False or any(stream.event_time is None for stream in streams):
        return False, []
    if RESULT_TIME in (stream.alias.casefold() for stream in streams):
        what = f"results have a column {RESULT_TIME!r}; rename the stream, or give result_time=False"
        return True, [QueryError("INVALID_ALIAS", what)]
    return True, []


def find_unknown_aliases(statistics: Statistics, known: Sequence[str]) -> Iterator[QueryError]:
    """Find what statistics say about streams that the join does not have."""
    named = {
        alias
        for figures in (statistics.tuples_per_second, statistics.bytes_per_tuple)
        if isinstance(figures, Mapping)
        for alias in figures
    }
    listed = ", ".join(known)
    for alias in sorted(named):
        if alias.casefold() not in map(str.casefold, known):
            what = f"statistics name {alias!r}, which is not one of {listed}"
            yield QueryError("UNKNOWN_ALIAS", what)
    for name in sorted(statistics.results_per_second or {}):
        if not replace(statistics, results_per_second={name: 0}).results_of(known):
            what = f"statistics name the results {name!r}, which must be two aliases or more of {listed}"
            yield QueryError("UNKNOWN_ALIAS", f"{what}, with commas between them")
