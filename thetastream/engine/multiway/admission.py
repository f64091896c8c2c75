"""Admits the new tuples of an epoch at a node: drops late tuples, and numbers and places the others.

Every node receives all new tuples, so all nodes give them the same numbers and places. Under count windows,
tuples are numbered before they are filtered, because a window counts the tuples that fail the filters too.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.columns import BORN, SEQUENCE, name_seen_column
from thetastream.core.keys import Int64s
from thetastream.engine.arrival import Numbers, keep_passing
from thetastream.engine.clock import Clock
from thetastream.engine.lateness import drop_late, read_times
from thetastream.engine.multiway.counters import MultiwayCounters
from thetastream.engine.multiway.equal_decisions import EqualDecisions
from thetastream.engine.multiway.query import MultiwayQuery


class Admitted(NamedTuple):
    """The new tuples of one stream that are not late and pass the filters."""

    stream: int
    sequence: Int64s
    """The numbers of the tuples in their stream."""
    times: Int64s
    """The event times in microseconds."""
    stored: pa.RecordBatch
    """The block of the tuples as they are stored."""
    probing: pa.RecordBatch
    """The block of the same tuples as they look for partners."""


def admit(
    query: MultiwayQuery,
    decisions: EqualDecisions,
    batches: Sequence[pa.RecordBatch | None],
    clock: Clock,
    counters: MultiwayCounters | None,
) -> Iterator[Admitted]:
    """Yield the tuples of each stream that a node admits in an epoch.

    Parameters
    ----------
    query : MultiwayQuery
    decisions : EqualDecisions
        The decisions of the epoch, which number the tuples.
    batches : sequence of RecordBatch or None
        The new tuples of each stream.
    clock : Clock
    counters : MultiwayCounters, optional
        Counters to which timely and late tuples are added. None if another node counts them.
    """
    sides = query.graph.sides
    # 1. Drop late tuples.
    timely = [
        None if batch is None else drop_late(batch, stream, sides[stream], clock.late_us, counters)
        for stream, batch in enumerate(batches)
    ]
    # 2. Number the tuples of all streams.
    times = [
        np.zeros(0, dtype=np.int64) if batch is None else read_times(batch, side)
        for batch, side in zip(timely, sides, strict=True)
    ]
    numbers = decisions.number(times)
    # 3. Add the place in the global order.
    for stream, batch in enumerate(timely):
        if batch is None or not batch.num_rows:
            continue
        if query.graph.counts is None:
            place = np.full(batch.num_rows, clock.epoch * query.n_streams + stream)
            block = batch.append_column(BORN, pa.array(place))
            yield Admitted(stream, numbers[stream].seen[stream], times[stream], block, block)
        else:
            passing, mine = keep_passing(batch, numbers[stream])
            yield _admit_by_number(stream, passing.take(mine.order), times[stream][mine.order], mine)


def _admit_by_number(stream: int, block: pa.RecordBatch, times: Int64s, numbers: Numbers) -> Admitted:
    """Add the numbers of tuples under count windows. The global order is then the order of arrival."""
    block = block.append_column(BORN, pa.array(np.sum(numbers.seen, axis=0)))
    sequence = numbers.seen[stream]
    probing = block
    for other, seen in enumerate(numbers.seen):
        probing = probing.append_column(name_seen_column(other), pa.array(seen))
    return Admitted(stream, sequence, times, block.append_column(SEQUENCE, pa.array(sequence)), probing)
