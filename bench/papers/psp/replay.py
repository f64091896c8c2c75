"""Runs a workload in one process, and measures state, probes, times of results, and CPU time of each node.

The response time of a result begins with the epoch that brings its last tuple. In epochs it is exact. In
milliseconds it is the time of these epochs, each as long as its busiest node takes on a core of its own. This
is the cost of the model without exchange, state store and Spark.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import chain, count
from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.internals import CountWindow, Inbox, LocalMultiway, LocalRun, Role, build_multiway_spec
from bench.core.replay import Step, bytes_held
from bench.papers.psp.growing_ring import GrowingRing
from bench.papers.psp.images import ALIASES, SECOND, START_US, Streams, Workload, streams_of
from thetastream.models import ATR, CTR, Multiway, Ring

EPOCH_US = 12 * SECOND
"""The event time of an epoch, which has twelve tuples of each stream."""
SLICE = CountWindow(4)


@dataclass
class Epoch(Step):
    until_us: int = 0
    """The event time up to which tuples have arrived."""
    came_us: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """For each result, the event time of its last tuple."""
    in_flight: int = 0
    in_flight_bytes: int = 0
    copies_sent: int = 0
    """New tuples that nodes receive, copies included."""
    partials_sent: int = 0
    """Partial results that nodes receive, copies included."""
    sent_bytes: int = 0

    def run_units(self, local: LocalRun, inboxes: list[Inbox]) -> list[list[pa.Array]]:
        """Count what the nodes receive, and run them."""
        blocks = [inbox.blocks(n, role) for inbox in inboxes for n in range(len(ALIASES)) for role in Role]
        self.copies_sent = sum(block.num_rows for block in chain.from_iterable(blocks))
        self.partials_sent = sum(inbox.received for inbox in inboxes) - self.copies_sent
        self.sent_bytes = sum(inbox.received_bytes for inbox in inboxes)
        return super().run_units(local, inboxes)

    @property
    def busiest_ms(self) -> float:
        """The duration of the epoch if each node has a core."""
        return 1e3 * max(self.cpu_s)

    @property
    def most_comparisons(self) -> int:
        """The number of comparisons of the node that makes the most."""
        return max(node.candidates for node in self.units)


@dataclass(frozen=True)
class Replay:
    epochs: list[Epoch]
    expected: int

    @property
    def came_us(self) -> np.ndarray:
        """For each result, the event time of its last tuple."""
        return np.concatenate([epoch.came_us for epoch in self.epochs])

    @property
    def found(self) -> np.ndarray:
        """For each result, the epoch in which it left."""
        return np.repeat(np.arange(len(self.epochs)), [epoch.results for epoch in self.epochs])

    @property
    def arrived(self) -> np.ndarray:
        """For each result, the epoch of its last tuple."""
        return np.searchsorted([epoch.until_us for epoch in self.epochs], self.came_us)

    @property
    def busy_ms(self) -> float:
        return 1e3 * sum(sum(epoch.cpu_s) for epoch in self.epochs)

    @property
    def response_epochs(self) -> float:
        """The mean over all results, which includes the epoch of the last tuple."""
        return float(np.mean(self.found - self.arrived + 1))

    @property
    def response_ms(self) -> float:
        """The mean time from the epoch of a result's last tuple to the end of its own."""
        until = np.cumsum([0.0, *(epoch.busiest_ms for epoch in self.epochs)])
        return float(np.mean(until[self.found + 1] - until[self.arrived]))

    def held(self) -> np.ndarray:
        """Compute the tuples that nodes hold after each epoch, of shape (epochs, nodes)."""
        change = [[node.stored - node.expired for node in epoch.units] for epoch in self.epochs]
        return np.cumsum(change, axis=0)

    def held_bytes(self) -> np.ndarray:
        """Return the bytes that nodes hold after each epoch, of shape (epochs, nodes)."""
        return np.array([bytes_held(epoch) for epoch in self.epochs])


def run_epochs(streams: Streams, model: Multiway, cuts_us: Iterator[int]) -> Iterator[Epoch]:
    """Run epochs that bring the tuples up to each of ``cuts_us``, and then epochs without input."""
    join = LocalMultiway(build_multiway_spec(streams.graph, streams.orders, model))
    return run_join(streams, join, cuts_us)


def run_join(streams: Streams, join: LocalMultiway | GrowingRing, cuts_us: Iterator[int]) -> Iterator[Epoch]:
    """Run a join as ``run_epochs`` does."""
    m, tuples = streams.work.streams, streams.work.tuples
    tables = [streams.table(n, f"s{n}") for n in range(m)]
    begun = np.zeros(m, dtype=np.int64)
    watermark = None
    while (begun < tuples).any() or join.in_flight:
        until = next(cuts_us)
        ends = np.array([np.searchsorted(times, until, side="right") for times in streams.times])
        batches = [cut(table, a, b) for table, a, b in zip(tables, begun, ends, strict=True)]
        epoch = Epoch(int(ends.sum()), until_us=until)
        pieces = epoch.run(join, batches, watermark)
        came = [np.max([columns[3 * n + 1].to_numpy() for n in range(m)], axis=0) for columns in pieces]
        epoch.came_us = np.concatenate([epoch.came_us, *came])
        epoch.in_flight = sum(partial.block.num_rows for partial in join.partial_results)
        epoch.in_flight_bytes = sum(partial.block.nbytes for partial in join.partial_results)
        yield epoch
        # This is Spark's watermark: the oldest of the newest event times of the streams, once all have begun.
        if (ends > 0).all():
            watermark = min(int(streams.times[n][ends[n] - 1]) for n in range(m)) - 1
        begun = ends


def cut(table: pa.Table, start: Any, end: Any) -> pa.RecordBatch | None:
    """Return some rows as one batch, or None if there are none."""
    return table.slice(start, end - start).to_batches()[0] if end > start else None


@cache
def replay(work: Workload, model: Multiway) -> Replay:
    """Run a workload in epochs of ``EPOCH_US``. The same workload is run once."""
    streams = streams_of(work)
    epochs = run_epochs(streams, model, count(START_US + EPOCH_US, EPOCH_US))
    return Replay(list(epochs), streams.expected)


def models(work: Workload, nodes: int) -> dict[str, Multiway]:
    """Return the ring and its baselines, with segments as long as the window."""
    segment = timedelta(microseconds=work.window_us)
    return {
        "Ring": Ring(nodes, SLICE),
        "ATR": ATR(nodes, segment),
        "CTR": CTR(nodes, 2, timedelta(microseconds=work.window_us // 6)),
    }


@cache
def warm_up() -> None:
    work = Workload(tuples=16, per_window=4, selectivity=0.5, pixels=64)
    for model in models(work, 2).values():
        replay(work, model)
