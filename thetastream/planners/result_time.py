"""The result time of a row: the latest event time of its tuples, marked as event time.

Spark's operators behind a join find the event time of their input by a mark in the metadata of a column. The
mark needs no operator of its own, and Spark leaves the column out of the plan if nothing reads it.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.frontend.streams import LATE_RESULTS, MARK
from thetastream.plan.domains import quoted
from thetastream.plan.query import RESULT_TIME, Stream


def add_result_time(results: DataFrame, streams: Sequence[Stream], is_prompt: bool) -> DataFrame:
    """Add the column ``result_time`` to results.

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
    times = [F.col(f"{quoted(stream.alias)}.{quoted(str(stream.event_time))}") for stream in streams]
    delays_ms = [-(-(stream.watermark_delay_us or 0) // 1000) for stream in streams]
    metadata: dict[str, int] = {}
    if results.isStreaming:
        metadata = {MARK: max(delays_ms)} if is_prompt else {LATE_RESULTS: 1}
    return results.select("*", latest(times, metadata))


def latest(times: Sequence[Column], metadata: Mapping[str, int]) -> Column:
    """Return the latest of these event times, with the name ``result_time`` and this metadata.

    It is NULL if one of them is NULL. A NULL is never late.
    """
    is_known = reduce(and_, (time.isNotNull() for time in times))
    newest = F.greatest(*times) if len(times) > 1 else times[0]
    return F.when(is_known, newest).alias(RESULT_TIME, metadata=dict(metadata))
