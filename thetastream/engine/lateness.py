"""The late filter: a tuple is late if its event time is at or before the watermark of the previous epoch."""

import numpy as np
import pyarrow as pa

from thetastream.core.condition import SideSpec
from thetastream.core.keys import HIGHEST, Int64s, encode
from thetastream.engine.counters import Counters, LateTuples


def read_times(batch: pa.RecordBatch, side: SideSpec) -> Int64s:
    """Read the event time of each row, in microseconds.

    The time is 0 if the stream has no event time, and the highest int64 if the event time is NULL.
    """
    if side.time is None:
        return np.zeros(batch.num_rows, dtype=np.int64)
    return encode(batch.column(side.time.column), side.time.domain)


def drop_late(
    batch: pa.RecordBatch,
    stream: int,
    side: SideSpec,
    late_us: int | None,
    counters: Counters | None = None,
) -> pa.RecordBatch:
    """Return the tuples of one stream that are not late.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    stream : int
        Number of the stream.
    side : SideSpec
        The alias and the event time of the stream.
    late_us : int or None
        The watermark of the previous epoch, in microseconds; None before the first watermark.
    counters : Counters, optional
        Counters to which timely and late tuples are added. None if another unit counts these tuples.
    """
    if side.time is None:
        if counters is not None:
            counters.admit(stream, side.alias, batch.num_rows, 0, None)
        return batch
    times = read_times(batch, side)
    is_timely = np.ones(len(times), dtype=np.bool_) if late_us is None else times > late_us
    n_timely = int(np.count_nonzero(is_timely))
    if counters is not None:
        known = times[times < HIGHEST]
        newest_us = int(known.max()) if len(known) else None
        counters.admit(stream, side.alias, n_timely, len(times) - n_timely, newest_us)
        if counters.late_tuples is not None and n_timely < len(times):
            late = batch.take(np.flatnonzero(~is_timely))
            counters.late_tuples.append(LateTuples(stream, late))
    return batch if n_timely == len(times) else batch.take(np.flatnonzero(is_timely))
