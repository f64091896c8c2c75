"""Checks spans of time in a job file."""

import re

from thetastream.core.durations import parse_duration
from thetastream.errors import QueryError

_PARTS = re.compile(r"(\s*[+-]?\s*\d+(\.\d+)?\s*[^\W\d_]+\s*,?)+")


def find_span_problem(text: str, what: str) -> QueryError | None:
    """Return an error if a text has the form of a span of time and is not one. Spark checks other forms.

    >>> print(find_span_problem("10 secnds", "delay"))
    [INVALID_DURATION] delay ('10 secnds') is no span of time; write it as in "1 day 2 hours" or "90s"
    >>> find_span_problem("5m", "delay") is None
    True
    """
    if parse_duration(text) is not None or _PARTS.fullmatch(text) is None:
        return None
    what = f"{what} ({text!r}) is no span of time"
    return QueryError("INVALID_DURATION", f'{what}; write it as in "1 day 2 hours" or "90s"')
