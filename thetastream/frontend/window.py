"""The window of a join: one duration, or one per alias."""

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
    if isinstance(within, Rows):
        problems.append(
            QueryError(
                "COUNT_WINDOW_NEEDS_SPLIT",
                f"a count window ({within}) needs one order of arrival, which the biclique does not keep; "
                "use a time window",
            )
        )
        return None
    durations: dict[str, Any]
    if isinstance(within, Mapping):
        given = {str(alias).casefold(): duration for alias, duration in within.items()}
        aliases = {stream.alias.casefold() for stream in streams}
        listed = ", ".join(stream.alias for stream in streams)
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
        durations = {s.alias: given[s.alias.casefold()] for s in streams if s.alias.casefold() in given}
    else:
        durations = {stream.alias: within for stream in streams}
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
