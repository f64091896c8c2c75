"""Writes the result time of a row: the latest event time of its tuples, as SQL over the results."""

from collections.abc import Sequence

from thetastream.core.how import How
from thetastream.lowering.domains import quote
from thetastream.lowering.query import Stream


def write_result_time(streams: Sequence[Stream]) -> str | None:
    """Write the latest event time of the tuples of a row; None if a stream has no event time."""
    return write_latest(_write_times(streams)) if _are_timed(streams) else None


def write_latest(times: Sequence[str]) -> str:
    """Write the latest of event times. It is NULL if one of them is NULL. A NULL is never late.

    >>> write_latest(["a.ts", "b.ts"])
    'CASE WHEN a.ts IS NOT NULL AND b.ts IS NOT NULL THEN greatest(a.ts, b.ts) END'
    """
    is_known = " AND ".join(f"{time} IS NOT NULL" for time in times)
    latest = f"greatest({', '.join(times)})" if len(times) > 1 else times[0]
    return f"CASE WHEN {is_known} THEN {latest} END"


def write_answer_time(how: How, streams: Sequence[Stream], waits_us: Sequence[int | None]) -> str | None:
    """Write the result time of a join of two streams that may answer tuples without partners.

    A pair has its latest event time. A tuple without partners has t + W: its event time plus the time for
    which it waits for partners. So the watermark cannot have passed its result time. If all partners are
    earlier than the tuple, W is negative, and the result time is the event time of the tuple, because the
    watermark may have passed t + W before the tuple arrives. The time is NULL if nothing bounds W.

    It is None if a stream has no event time, and if a tuple that waits for ever is answered on its own, so
    that no time decides it.
    """
    if not _are_timed(streams):
        return None
    times = _write_times(streams)
    if how.is_inner:
        return write_latest(times)
    alone = [
        write_later(time, str(stream.type_of(str(stream.event_time))), None if wait is None else max(wait, 0))
        for time, stream, wait in zip(times, streams, waits_us, strict=True)
    ]
    if how.is_timed_by_decision:
        side = how.preserved[0]
        return None if waits_us[side] is None else alone[side]
    written = write_latest(times)
    for side in how.padded:
        is_alone = f"{quote(streams[side].alias)} IS NULL"
        written = f"CASE WHEN {is_alone} THEN {alone[side.other]} ELSE {written} END"
    return written


def write_later(time: str, type_: str, span_us: int | None) -> str:
    """Write an event time plus elapsed time. Spark itself adds days to a TIMESTAMP in local time.

    >>> write_later("a.ts", "timestamp", 5)
    'timestamp_micros(unix_micros(a.ts) + 5)'
    """
    if span_us is None:
        return f"CAST(NULL AS {type_})"
    if type_ == "timestamp":
        return f"timestamp_micros(unix_micros({time}) + {span_us})"
    return f"{time} + INTERVAL '{span_us // 1_000_000}.{span_us % 1_000_000:06}' SECOND"


def _are_timed(streams: Sequence[Stream]) -> bool:
    return bool(streams) and all(stream.event_time is not None for stream in streams)


def _write_times(streams: Sequence[Stream]) -> list[str]:
    return [f"{quote(stream.alias)}.{quote(str(stream.event_time))}" for stream in streams]
