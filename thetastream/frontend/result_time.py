"""Reads the option ``result_time``: whether results have a column with their latest event time."""

from collections.abc import Sequence

from thetastream.errors import QueryError, ThetastreamError
from thetastream.plan.query import RESULT_TIME, Stream


def read_result_time(
    setting: bool | None, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> bool:
    """Return whether results have the column ``result_time``, and add errors to ``problems``.

    They have it unless the option is false or a stream has no event time.
    """
    if setting is False or any(stream.event_time is None for stream in streams):
        return False
    if RESULT_TIME in (stream.alias.casefold() for stream in streams):
        what = f"results have a column {RESULT_TIME!r}; rename the stream, or give result_time=False"
        problems.append(QueryError("INVALID_ALIAS", what))
    return True
