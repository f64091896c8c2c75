"""The fixed properties of a multi-way join, and what a node keeps from epoch to epoch and counts in an epoch.

The tuples of an epoch can no longer meet stored tuples before its horizon. Under windows of event time, the
horizon is one watermark for all streams: later tuples of the epoch have later event times. Under count
windows, each stream has a horizon of its own: the number of its last tuple that arrived before the epoch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from thetastream.engine.arrival import read_times
from thetastream.engine.clock import find_earliest
from thetastream.engine.counters import SendingCounters
from thetastream.engine.moved_tuples import MOVED_TUPLES
from thetastream.engine.multiway.graph import HopKey, HopOrder, JoinGraph
from thetastream.engine.multiway.hop import Hop, plan_hop
from thetastream.engine.multiway.hop_orders import HopMeasurements
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.store.box import StoredStream
from thetastream.engine.store.segment import SegmentMeta
from thetastream.models.base import moves_tuples
from thetastream.models.multiway import Multiway, Probes, RoutedTuples

Horizon = int | None | tuple[int, ...]
"""The horizon of an epoch: a watermark in microseconds, or the number of a tuple for each stream."""


@dataclass(frozen=True)
class MultiwayQuery:
    """The fixed properties of a multi-way join. Picklable."""

    graph: JoinGraph
    orders: tuple[HopOrder, ...]
    """The planned hop order of each stream."""
    stored: tuple[StoredStream, ...]
    """How the tuples of each stream are stored. Each stream has one entry for each part of the store."""
    model: Multiway
    reach: tuple[tuple[tuple[int | None, int | None], ...], ...] = ()
    """For each stream, the bounds of the time differences in a result: see ``JoinGraph.reach``."""
    refinement: Refinement | None = None
    """The hop orders that change as selectivities are measured. None means that hop orders never change."""
    most_moved: int = MOVED_TUPLES
    """How many tuples of each stream a node sends in an epoch at most when it leaves."""
    _hops: dict[HopKey, Hop] = field(default_factory=dict, compare=False, repr=False)
    """A cache of planned hops. The hop orders of m streams may use m * 2 ** (m - 1) different hops."""

    @property
    def n_streams(self) -> int:
        """The number m of streams."""
        return len(self.orders)

    def part(self, stream: int, part: int) -> int:
        """Return the number of the index that stores a part of the tuples of a stream."""
        return stream * self.model.n_parts + part

    def list_moving(self, newest: Multiway) -> list[int]:
        """List the streams whose tuples move to nodes of the newest model when their node leaves."""
        endless = [stream for stream, stored in enumerate(self.stored) if stored.lifetime_us is None]
        return list(range(self.n_streams)) if moves_tuples(newest) else endless

    def describe_routed(self, stream: int, batch: pa.RecordBatch) -> RoutedTuples:
        """Describe new tuples of a stream for a model that chooses the nodes that receive them."""
        times = read_times(batch, self.graph.sides[stream])

        def find_probes() -> Probes:
            first_hop = self.find_hop((stream,), self.orders[stream][0])
            return Probes(*first_hop.find_interval(batch), times)

        return RoutedTuples(stream, times, self.reach[stream], find_probes)

    def find_hop(self, members: Sequence[int], target: int) -> Hop:
        """Return the hop from partial results over ``members`` to ``target``."""
        step = sum(1 << stream for stream in members), target
        if step not in self._hops:
            stored = self.stored[self.part(target, 0)].plan
            self._hops[step] = plan_hop(self.graph, sorted(members), target, stored)
        return self._hops[step]


def combine_horizons(horizons: Iterable[Horizon], n_streams: int) -> list[int | None]:
    """Return the earliest horizon of each stream.

    >>> combine_horizons([(5, 9), (7, 2)], 2), combine_horizons([30, None], 2)
    ([5, 2], [None, None])
    """
    spread = [one if isinstance(one, tuple) else (one,) * n_streams for one in horizons]
    return [find_earliest(stream) for stream in zip(*spread, strict=True)]


class Waiting(NamedTuple):
    """Tuples of one stream and epoch that wait, all or in part. Their block is stored."""

    id: str
    """The name under which the block is stored."""
    stream: int
    horizon: Horizon
    """The horizon of the epoch in which these tuples arrived."""
    n_rows: int
    done: int
    """The number of tuples that have begun already. They are the first rows of the block."""


@dataclass
class MultiwayState:
    """The state of a node."""

    segments: list[SegmentMeta] = field(default_factory=list)
    arrived: tuple[int, ...] = ()
    """The number of tuples of each stream so far."""
    waiting: list[Waiting] = field(default_factory=list)
    admitted: list[tuple[int, int]] = field(default_factory=list)
    """For each epoch whose tuples may be in flight, its number and the number of tuples that began in it."""
    measured: HopMeasurements | None = None
    """The measurements of hops, if hop orders are refined."""
    ends_us: int | None = None
    """For a generation of ATR, or of a ring in one epoch, that a newer one replaces: the watermark at which
    it has ended."""
    stored_once: int | None = None
    """For a ring that makes all hops in one epoch: the stream whose tuples are stored once. The planner may
    choose another one for a query that continues, but the tuples lie as the first choice says."""


@dataclass
class MultiwayCounters(SendingCounters):
    """The work that one node did in one epoch."""

    waiting: int = 0
    """Stored tuples that have not begun to look for partners, because too many tuples are in flight."""
    order: dict[str, list[str]] = field(default_factory=dict)
    """By alias, the hop order of the tuples of each stream, if hop orders are refined."""
