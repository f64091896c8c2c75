"""The new tuples of an epoch: which of them are late, and the order in which they arrive.

    late(t)       the event time of t is at or before the watermark of the previous epoch
    seen_j(t)     tuples of stream j before t; if j is the stream of t, this is the number of t in its stream
    arrival(t)    the sum of seen_j(t) over all streams j

Each unit computes the order of arrival by itself (SplitJoin, ATC 2016, sections 3 and 4). Epochs follow each
other. Inside an epoch, the tuples of all streams are sorted by time stamp. Among equal time stamps, the
tuples of an earlier stream come first, and tuples of one stream keep the order of their source. Then a count
window of n tuples of j is an interval of numbers: an arriving t meets the stored tuples of j whose numbers
are from seen_j(t) - n to seen_j(t) - 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import read_signs
from thetastream.core.columns import PASSES
from thetastream.core.condition import SideSpec
from thetastream.core.errors import ThetastreamError
from thetastream.core.keys import HIGHEST, Int64s, Mask, encode
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
    is_counted: Mask | None = None,
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
    is_counted : array of bool, optional
        The tuples that are added to ``counters``, if other units count the others.

    Raises
    ------
    ThetastreamError
        LATE_DELETE if a tuple that is deleted is late, and the user wants the query to end then.
    """
    mine = np.ones(batch.num_rows, dtype=np.bool_) if is_counted is None else is_counted
    if side.time is None:
        if counters is not None:
            counters.admit(stream, side.alias, int(np.count_nonzero(mine)), 0, None)
        return batch
    times = read_times(batch, side)
    is_timely = np.ones(len(times), dtype=np.bool_) if late_us is None else times > late_us
    if counters is not None:
        late = mine & ~is_timely
        n_late = int(np.count_nonzero(late))
        known = times[mine & (times < HIGHEST)]
        newest_us = int(known.max()) if len(known) else None
        counters.admit(stream, side.alias, int(np.count_nonzero(mine)) - n_late, n_late, newest_us)
        signs = read_signs(batch)
        if signs is not None:
            n_deletes = int(np.count_nonzero(late & (signs < 0)))
            counters.late_deletes += n_deletes
            if n_deletes and side.rules.fails_on_late:
                raise _refuse_late(side, n_deletes, times[late & (signs < 0)], late_us)
        if counters.late_tuples is not None and n_late:
            counters.late_tuples.append(LateTuples(stream, batch.take(np.flatnonzero(late))))
    return batch if is_timely.all() else batch.take(np.flatnonzero(is_timely))


def _refuse_late(side: SideSpec, n: int, times: Int64s, late_us: int | None) -> ThetastreamError:
    """Make the error of late deletes."""
    late_s = (0 if late_us is None else late_us - int(times.min())) / 1e6
    what = f"{n} deleted rows of {side.alias!r} are up to {late_s:,.6f} seconds behind the watermark"
    hint = 'so their results would stay; give withWatermark a longer delay, or leave late="fail" out'
    return ThetastreamError("LATE_DELETE", f"{what}, {hint}")


class Numbers(NamedTuple):
    """The numbers of the tuples of one stream in an epoch, in order of arrival."""

    order: Int64s
    """The positions of the tuples in the block."""
    seen: tuple[Int64s, ...]
    """For each stream, the number of its tuples that arrived before each of the tuples."""


def number_arrivals(times: Sequence[Int64s], arrived: Sequence[int]) -> tuple[Numbers, ...]:
    """Number the tuples of an epoch in the order of arrival.

    Parameters
    ----------
    times : sequence of arrays of int64
        For each stream, the time stamps of its tuples, in the order of their source.
    arrived : sequence of int
        The number of tuples of each stream in earlier epochs.

    Examples
    --------
    >>> left, right = number_arrivals((np.array([20, 10]), np.array([10, 30])), (100, 0))
    >>> left.order.tolist(), [seen.tolist() for seen in left.seen]
    ([1, 0], [[100, 101], [0, 1]])
    >>> right.order.tolist(), [seen.tolist() for seen in right.seen]
    ([0, 1], [[101, 102], [0, 1]])
    """
    orders = [np.argsort(mine, kind="stable") for mine in times]
    ordered = [mine[order] for mine, order in zip(times, orders, strict=True)]

    def count_before(stream: int, other: int) -> Int64s:
        if stream == other:
            return arrived[stream] + np.arange(len(orders[stream]))
        # Among equal time stamps, tuples of an earlier stream arrive first.
        before = np.searchsorted(ordered[other], ordered[stream], "right" if other < stream else "left")
        return arrived[other] + before.astype(np.int64)

    streams = range(len(times))
    return tuple(
        Numbers(orders[stream], tuple(count_before(stream, other) for other in streams)) for stream in streams
    )


def keep_passing(batch: pa.RecordBatch, numbers: Numbers) -> tuple[pa.RecordBatch, Numbers]:
    """Drop the tuples that fail the filters of their stream. They have numbers, because windows count
    them."""
    if PASSES not in batch.schema.names:
        return batch, numbers
    passes = batch.column(PASSES).is_valid().to_numpy(zero_copy_only=False)[numbers.order]
    passing = Numbers(numbers.order[passes], tuple(seen[passes] for seen in numbers.seen))
    return batch.drop_columns([PASSES]), passing
