"""Reads spans of event time: the time window of a join, and ``every``, which says how often groups are
updated."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from pyspark.sql import DataFrame

from thetastream.core.errors import QueryError
from thetastream.core.spans import Within
from thetastream.families.windows import find_window_problems, list_by_alias
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.lowering.query import Stream
from thetastream.spark.event_time import count_watermarks


def read_window(
    within: Within, streams: Sequence[Stream], catalyst: Catalyst
) -> tuple[tuple[int, ...] | None, list[QueryError]]:
    """Read ``within`` as one span in microseconds per stream, and list what is wrong with it.

    None means the full history.
    """
    if within is None:
        return None, []
    durations, problems = list_by_alias(within, streams)
    problems += find_window_problems(streams)
    spans = []
    for alias, duration in durations.items():
        what = f"within of {alias!r}" if isinstance(within, Mapping) else "within"
        try:
            spans.append(catalyst.duration(duration, what))
        except QueryError as problem:
            if str(problem) not in map(str, problems):
                problems.append(problem)
    return tuple(spans) if len(spans) == len(streams) else None, problems


def read_every(
    every: str | timedelta,
    streams: Sequence[Stream],
    frames: Mapping[str, DataFrame],
    has_window: bool,
    catalyst: Catalyst,
) -> int | None:
    """Read ``every`` as the time that views wait, in milliseconds. It is None for batch DataFrames, which are
    one epoch.

    Raises
    ------
    QueryError
        INVALID_DURATION, NO_WATERMARK, or EVERY if the groups have a window of the result time or if an input
        has several watermarks. If the streams pause, one of several watermarks could hold the others back,
        and the last views would wait in their units.
    """
    every_us = catalyst.duration(every, "every")
    if has_window:
        what = "every delays updates of running totals, and a window of result_time could close meanwhile"
        raise QueryError("EVERY", f'{what}; leave every={every!r} out, and write in output mode "append"')
    if not any(stream.is_streaming for stream in streams):
        return None
    for problem in find_window_problems(streams, "every"):
        raise problem
    for alias, frame in frames.items():
        found = count_watermarks(frame)
        if found > 1:
            what = f"every needs one watermark on each stream, but {alias!r} has {found}"
            hint = "the last update would wait while one of them stands still"
            way = "set withWatermark once, behind the union, or leave every out"
            raise QueryError("EVERY", f"{what}, from a union or a join: {hint}; {way}")
    return every_us // 1000
