"""Admits the new tuples of an epoch at a node: drops late tuples, and numbers and places the others.

The place of a tuple follows from its epoch and its stream. A node that receives all new tuples also numbers
them, as all other nodes do. Under count windows, tuples are numbered before they are filtered, because a
window counts the tuples that fail the filters too.

A tuple that is inserted and deleted in one epoch has one place in the global order, so both vanish. Of
different epochs, an insert and its delete stay both: a partial result that began between them must still meet
the insert alone. They have different places, so they are never equal when segments are merged.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from thetastream.core.cancellation import cancel
from thetastream.core.columns import BORN, SEQUENCE, name_seen_column
from thetastream.core.keys import Int64s
from thetastream.engine.arrival import drop_late, keep_passing, read_times
from thetastream.engine.clock import Clock
from thetastream.engine.multiway.equal_decisions import EqualDecisions
from thetastream.engine.multiway.query import MultiwayCounters, MultiwayQuery


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
    node: int,
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
    node : int
        The number of the node.
    """
    sides = query.graph.sides
    timely: list[tuple[int, pa.RecordBatch]] = []
    for stream, batch in enumerate(batches):
        if batch is not None:
            batch = cancel(batch)
            is_counted = None
            if query.model.chooses_receivers:
                is_counted = query.model.is_counted(node, query.describe_routed(stream, batch))
            side, late_us = sides[stream], clock.late_us
            timely.append((stream, drop_late(batch, stream, side, late_us, counters, is_counted)))
    if query.graph.counts is not None:
        yield from _admit_by_number(query, decisions, timely)
        return
    for stream, batch in timely:
        if batch.num_rows:
            times = read_times(batch, sides[stream])
            place = np.full(batch.num_rows, clock.epoch * query.n_streams + stream)
            block = batch.append_column(BORN, pa.array(place))
            yield Admitted(stream, decisions.number(stream, times), times, block, block)


def _admit_by_number(
    query: MultiwayQuery, decisions: EqualDecisions, timely: Sequence[tuple[int, pa.RecordBatch]]
) -> Iterator[Admitted]:
    """Admit tuples under count windows. The global order is the order of arrival, in which all streams are
    numbered together."""
    times = [np.zeros(0, dtype=np.int64) for _ in query.graph.sides]
    for stream, batch in timely:
        times[stream] = read_times(batch, query.graph.sides[stream])
    numbers = decisions.number_arrivals(times)
    for stream, batch in timely:
        if not batch.num_rows:
            continue
        passing, mine = keep_passing(batch, numbers[stream])
        block = passing.take(mine.order)
        block = block.append_column(BORN, pa.array(np.sum(mine.seen, axis=0)))
        sequence, probing = mine.seen[stream], block
        for other, seen in enumerate(mine.seen):
            probing = probing.append_column(name_seen_column(other), pa.array(seen))
        stored = block.append_column(SEQUENCE, pa.array(sequence))
        yield Admitted(stream, sequence, times[stream][mine.order], stored, probing)
