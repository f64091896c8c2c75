"""Reads the window of a join: a time window or a count window, for all streams or per alias."""

from collections.abc import Mapping, Sequence
from typing import Any

from thetastream.core.windows import Rows, Within
from thetastream.errors import QueryError, ThetastreamError
from thetastream.plan.query import Stream, find_window_problems
from thetastream.spark.catalyst import Catalyst


def read_window(
    within: Within, streams: Sequence[Stream], catalyst: Catalyst, problems: list[ThetastreamError]
) -> tuple[int, ...] | None:
    """Read ``within`` as one span in microseconds per stream. None means the full history."""
    if within is None:
        return None
    durations = _list_by_alias(within, streams, problems)
    problems += find_window_problems(streams)
    spans = []
    for alias, duration in durations.items():
        what = f"within of {alias!r}" if isinstance(within, Mapping) else "within"
        try:
            spans.append(catalyst.duration(duration, what))
        except QueryError as problem:
            if str(problem) not in map(str, problems):
                problems.append(problem)
    return tuple(spans) if len(spans) == len(streams) else None


def find_arrival_problems(streams: Sequence[Stream]) -> list[QueryError]:
    """Find reasons why an epoch cannot be replayed in order of arrival.

    The reasons are: only one stream has an event time, or the event times have two types. If no stream has an
    event time, there is no reason: the left tuples are replayed before the right ones, in the sources' order.
    """
    if all(stream.event_time is None for stream in streams):
        return []
    return find_window_problems(streams, "the order of arrival")


def is_counted(within: Within) -> bool:
    """Whether some window counts tuples."""
    windows = within.values() if isinstance(within, Mapping) else (within,)
    return any(isinstance(window, Rows) for window in windows)


def read_counts(
    within: Within, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> tuple[int, ...] | None:
    """Read the count window of each stream, in tuples. None if ``within`` is not valid."""
    windows = _list_by_alias(within, streams, problems)
    for alias, window in windows.items():
        if not isinstance(window, Rows):
            problems.append(
                QueryError(
                    "MIXED_WINDOWS",
                    f"within of {alias!r} must count tuples with th.Rows(n), as other windows do, "
                    f"not {window!r}",
                )
            )
    counts = [window.n for window in windows.values() if isinstance(window, Rows)]
    return tuple(counts) if len(counts) == len(streams) else None


def _list_by_alias(
    within: Within, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> dict[str, Any]:
    """Return the window of each stream by alias, in the order of the streams."""
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
        return {s.alias: given[s.alias.casefold()] for s in streams if s.alias.casefold() in given}
    return {stream.alias: within for stream in streams}
