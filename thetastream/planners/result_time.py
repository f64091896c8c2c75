"""The result time of a row: the latest event time of its tuples, marked as event time.

Spark's operators behind a join find the event time of their input by a mark in the metadata of a column. The
mark needs no operator of its own, and Spark leaves the column out of the plan if nothing reads it.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.core.how import How
from thetastream.frontend.streams import LATE_RESULTS
from thetastream.plan.domains import quote
from thetastream.plan.query import RESULT_TIME, Stream
from thetastream.spark.event_time import MARK


def find_time_metadata(results: DataFrame, streams: Sequence[Stream], is_prompt: bool) -> dict[str, int]:
    """Return the metadata of the result time.

    Parameters
    ----------
    results : DataFrame
        Results with one struct column per alias.
    streams : sequence of Stream
        The streams of the join, all with an event time.
    is_prompt : bool
        Whether each result leaves before the watermark can pass it. If so, the column of a stream is marked
        as event time, with the longest delay of the streams' watermarks. Otherwise Spark would drop results,
        and a note in the column's metadata lets a join behind this one say so.
    """
    if not results.isStreaming:
        return {}
    delays_ms = [-(-(stream.watermark_delay_us or 0) // 1000) for stream in streams]
    return {MARK: max(delays_ms)} if is_prompt else {LATE_RESULTS: 1}


def read_times(streams: Sequence[Stream]) -> list[Column]:
    """Return the event time of each stream, as columns over results."""
    return [F.col(f"{quote(stream.alias)}.{quote(str(stream.event_time))}") for stream in streams]


def build_result_time(times: Sequence[Column], metadata: Mapping[str, int]) -> Column:
    """Return the latest of these event times, with the name ``result_time`` and this metadata.

    It is NULL if one of them is NULL. A NULL is never late.
    """
    return _name(_find_latest(times), metadata)


def build_answer_time(
    how: How, streams: Sequence[Stream], waits_us: Sequence[int | None], metadata: Mapping[str, int]
) -> Column:
    """Return the result time of a join of two streams that may answer tuples without partners.

    A pair has its latest event time. A tuple without partners has t + W: its event time plus the time for
    which it waits for partners. So the watermark cannot have passed its result time. If all partners are
    earlier than the tuple, W is negative, and the result time is the event time of the tuple, because the
    watermark may have passed t + W before the tuple arrives. The time is NULL if nothing bounds W.
    """
    times = read_times(streams)
    if how.is_inner:
        return build_result_time(times, metadata)
    alone = [
        _add(time, str(stream.type_of(str(stream.event_time))), None if wait is None else max(wait, 0))
        for time, stream, wait in zip(times, streams, waits_us, strict=True)
    ]
    if how.is_timed_by_decision:
        return _name(alone[how.preserved[0]], metadata)
    time = _find_latest(times)
    for side in how.padded:
        time = F.when(F.col(quote(streams[side].alias)).isNull(), alone[side.other]).otherwise(time)
    return _name(time, metadata)


def _find_latest(times: Sequence[Column]) -> Column:
    is_known = reduce(and_, (time.isNotNull() for time in times))
    return F.when(is_known, F.greatest(*times) if len(times) > 1 else times[0])


def _add(time: Column, type_: str, span_us: int | None) -> Column:
    """Add elapsed time to an event time. Spark itself adds days to a TIMESTAMP in local time."""
    if span_us is None:
        return F.lit(None).cast(type_)
    if type_ == "timestamp":
        return F.timestamp_micros(F.unix_micros(time) + F.lit(span_us))
    return time + F.expr(f"INTERVAL '{span_us // 1_000_000}.{span_us % 1_000_000:06}' SECOND")


def _name(time: Column, metadata: Mapping[str, int]) -> Column:
    return time.alias(RESULT_TIME, metadata=dict(metadata))
