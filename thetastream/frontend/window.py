"""The window of a join: of event time or of tuples, one for all streams or one per alias."""

from collections.abc import Mapping, Sequence
from typing import Any

from thetastream.errors import QueryError, ThetastreamError
from thetastream.plan.query import Stream, window_problems
from thetastream.spark.catalyst import Catalyst
from thetastream.windows import Rows, Within


def read_window(
    within: Within, streams: Sequence[Stream], catalyst: Catalyst, problems: list[ThetastreamError]
) -> tuple[int, ...] | None:
    """``within`` in microseconds, stream by stream; None for the full history."""
    if within is None:
        return None
    durations = _by_alias(within, streams, problems)
    problems += window_problems(streams)
    spans = []
    for alias, duration in durations.items():
        what = f"within of {alias!r}" if isinstance(within, Mapping) else "within"
        try:
            spans.append(catalyst.duration(duration, what))
        except QueryError as problem:
            if str(problem) not in map(str, problems):
                problems.append(problem)
    return tuple(spans) if len(spans) == len(streams) else None


def arrival_problems(streams: Sequence[Stream]) -> list[QueryError]:
    """What keeps an epoch from being replayed: event times of one stream only, or of two types.

    Without any, tuples are replayed left before right, as the sources have them.
    """
    if all(stream.event_time is None for stream in streams):
        return []
    return window_problems(streams, "the order of arrival")


def is_counted(within: Within) -> bool:
    """Whether some window counts tuples."""
    windows = within.values() if isinstance(within, Mapping) else (within,)
    return any(isinstance(window, Rows) for window in windows)


def read_counts(
    within: Within, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> tuple[int, int] | None:
    """Count windows of two streams, in tuples."""
    windows = _by_alias(within, streams, problems)
    for alias, window in windows.items():
        if not isinstance(window, Rows):
            problems.append(
                QueryError(
                    "MIXED_WINDOWS",
                    f"within of {alias!r} must count tuples as the other one does, th.Rows(n), "
                    f"not {window!r}",
                )
            )
    counts = [window.n for window in windows.values() if isinstance(window, Rows)]
    return (counts[0], counts[1]) if len(counts) == 2 else None


def _by_alias(within: Within, streams: Sequence[Stream], problems: list[ThetastreamError]) -> dict[str, Any]:
    """The window of each stream, in the order of the streams."""
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
