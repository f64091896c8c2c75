"""Reads how often a query starts an epoch: ``trigger=`` of ``th.write`` and ``th.insert``."""

from datetime import timedelta
from typing import Any

from thetastream.core.columns import write_delay
from thetastream.core.errors import QueryError
from thetastream.core.spans import parse_duration

AVAILABLE_NOW = "available now"


def read_trigger(trigger: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's ``DataStreamWriter.trigger``.

    If there is no trigger, epochs follow one another without a pause.

    Raises
    ------
    QueryError
        BAD_VALUE.

    Examples
    --------
    >>> read_trigger("available now"), read_trigger("5m")
    ({'availableNow': True}, {'processingTime': '300000000 microseconds'})
    """
    if trigger is None:
        return {"processingTime": "0 seconds"}
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    span = parse_duration(trigger) if isinstance(trigger, str) else None
    if span is None or span < timedelta():
        what = f'trigger must be "{AVAILABLE_NOW}" or the time between two epochs'
        raise QueryError("BAD_VALUE", f'{what}, as in "10 seconds", not {trigger!r}')
    return {"processingTime": write_delay(span)}
