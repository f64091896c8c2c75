"""Reads the count windows of a join, and finds the reasons why its streams do not allow a window."""

from collections.abc import Mapping, Sequence
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.core.spans import Rows, Within
from thetastream.families.request import JoinRequest
from thetastream.lowering.query import ORIGIN_LATE, Stream


def is_counted(within: Within) -> bool:
    """Whether some window counts tuples."""
    windows = within.values() if isinstance(within, Mapping) else (within,)
    return any(isinstance(window, Rows) for window in windows)


def read_count_windows(request: JoinRequest) -> tuple[tuple[int, ...] | None, list[QueryError]]:
    """Read how many tuples of each stream stay joinable, and list what is wrong with these windows.

    The sizes are None if no window counts tuples, or if ``within`` is not valid.
    """
    if not is_counted(request.within):
        return None, []
    problems = []
    if request.archive_period_us is not None:
        what = "archive_period is a span of event time, and a count window has none; leave it out"
        problems.append(QueryError("ARCHIVE_PERIOD", what))
    problems += find_arrival_problems(request.streams)
    windows, found = list_by_alias(request.within, request.streams)
    problems += found
    problems += [
        QueryError(
            "MIXED_WINDOWS",
            f"within of {alias!r} must count tuples with th.Rows(n), as other windows do, not {window!r}",
        )
        for alias, window in windows.items()
        if not isinstance(window, Rows)
    ]
    counts = [window.n for window in windows.values() if isinstance(window, Rows)]
    return tuple(counts) if len(counts) == len(request.streams) else None, problems


def list_by_alias(within: Within, streams: Sequence[Stream]) -> tuple[dict[str, Any], list[QueryError]]:
    """List the window of each stream by alias, in the order of the streams, and what is wrong with them."""
    problems = []
    if isinstance(within, Mapping):
        given = {str(alias).casefold(): window for alias, window in within.items()}
        aliases = {stream.alias.casefold() for stream in streams}
        listed = ", ".join(stream.alias for stream in streams)
        if len(given) < len(within):
            what = ", ".join(map(repr, within))
            problems.append(QueryError("WINDOW_TWICE", f"within must name each stream once; it names {what}"))
        problems += [
            QueryError("UNKNOWN_ALIAS", f"within names {alias!r}, which is not one of the streams {listed}")
            for alias in within
            if str(alias).casefold() not in aliases
        ]
        problems += [
            QueryError(
                "WINDOW_MISSING", f"within gives no window for {alias!r}; name every stream of {listed}"
            )
            for alias in (stream.alias for stream in streams)
            if alias.casefold() not in given
        ]
        known = [stream.alias for stream in streams if stream.alias.casefold() in given]
        return {alias: given[alias.casefold()] for alias in known}, problems
    return {stream.alias: within for stream in streams}, problems


def find_arrival_problems(streams: Sequence[Stream]) -> list[QueryError]:
    """Find reasons why an epoch cannot be replayed in order of arrival.

    The reasons are: only one stream has an event time, or the event times have two types. If no stream has an
    event time, there is no reason: the left tuples are replayed before the right ones, in the sources' order.
    """
    if all(stream.event_time is None for stream in streams):
        return []
    return find_window_problems(streams, "the order of arrival")


def find_window_problems(streams: Sequence[Stream], what: str = "a time window") -> list[QueryError]:
    """Return errors if the event times of these streams cannot be compared. ``what`` needs the comparison."""
    problems = [
        QueryError(
            "NO_WATERMARK",
            f"{what} needs the event time of stream {stream.alias!r}, but no column is marked; "
            + _suggest_event_time(stream),
        )
        for stream in streams
        if stream.event_time is None
    ]
    kinds = {stream.alias: stream.type_of(stream.event_time) for stream in streams if stream.event_time}
    for alias, kind in kinds.items():
        if kind not in ("timestamp", "timestamp_ntz"):
            column = next(str(stream.event_time) for stream in streams if stream.alias == alias)
            problems.append(
                QueryError(
                    "EVENT_TIME_TYPE",
                    f"the event time of {alias!r} must be TIMESTAMP or TIMESTAMP_NTZ, not {kind.upper()}; "
                    f"{spell_cast(alias, column)}",
                )
            )
    if not problems and len(set(kinds.values())) > 1:
        listed = ", ".join(f"{alias} {kind.upper()}" for alias, kind in kinds.items())
        local = next(s for s in streams if s.event_time and kinds[s.alias] == "timestamp_ntz")
        problems.append(
            QueryError(
                "EVENT_TIME_TYPES",
                f"event times must have one type, but they are {listed}; "
                f"{spell_cast(local.alias, str(local.event_time))}; in a table of pandas, say which zone its "
                f'times mean: {local.alias}["{local.event_time}"].dt.tz_localize("UTC")',
            )
        )
    return problems


def _suggest_event_time(stream: Stream) -> str:
    if stream.event_time_origin == ORIGIN_LATE:
        return (
            "its results may come behind the watermark; join with another model, or write the results to a "
            "table, read the table as a stream and call .withWatermark on it"
        )
    if stream.is_streaming:
        return f'call .withWatermark("column", "delay") on it, or th.by_arrival({stream.alias})'
    return (
        "Spark drops the mark of withWatermark from batch DataFrames; "
        f'name the column: event_time={{"{stream.alias}": "column"}}'
    )


def spell_cast(alias: str, column: str) -> str:
    """Write the cast of an event time in Python and in SQL."""
    return (
        f'cast it before the join: {alias}.withColumn("{column}", F.col("{column}").cast("timestamp")), '
        f"or CAST({column} AS TIMESTAMP) in SQL"
    )
