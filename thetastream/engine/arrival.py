"""The order of arrival, which each unit computes by itself (SplitJoin, ATC 2016, sections 3 and 4).

Epochs follow each other. Inside an epoch, the tuples of all streams are sorted by time stamp. Among equal
time stamps, the tuples of an earlier stream come first, and tuples of one stream keep the order of their
source. For a tuple t and a stream j

    seen_j(t)     tuples of j before t; if j is the stream of t, this is the number of t in its stream
    arrival(t)    the sum of seen_j(t) over all streams j

Then a count window of n tuples of j is an interval of numbers: an arriving t meets the stored tuples of j
whose numbers are from seen_j(t) - n to seen_j(t) - 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.columns import PASSES
from thetastream.core.keys import Int64s


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
