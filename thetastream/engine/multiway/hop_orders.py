"""Hop orders that follow measured selectivities, so that tuples send as few partial results as possible.

The selectivities (``selectivities``) and the numbers of stored tuples give the costs of hop orders, and the
refiner of each node chooses the cheapest. Older epochs have smaller weights. If the condition compares two
streams and no first hop has compared them, a few tuples try this hop.

*Equal decisions.* Every node sees all new tuples and all partial results. So all nodes count the same numbers
and make the same decisions without messages, and so does a Spark task that is run again. Partial results
reach nodes in any order, so they are added up as integers. Floats change hop by hop in a fixed order, and
only by sums, products and quotients, which have the same results on all machines. If nodes decided
differently, results would be lost. A node that makes all hops of a tuple itself need not decide like the
others: it counts its own hops and the tuples that it stores.

*Costs.* The cost of a hop order is the number of partial results that it sends. Let held(j) be the number of
stored tuples of stream j. A tuple of stream i that has been joined with the other streams of S has W(S) /
held(i) partial results on average. From S on, the smallest number of partial results to send is

    W(S) = J(S) * product of held(j), j in S
    rest(S) = min over t not in S of W(S + t) + rest(S + t),     rest(all) = 0, W(all) = 0

The value of W(all) is 0, because the last hop finds results, which are the same in every hop order. held(i)
is a factor of all hop orders of stream i, so one table of rest(S) serves the tuples of all streams.

*Stored tuples.* Every node counts for itself how many tuples of each stream all nodes store. It stores a
share of the tuples but sees all of them. The tuples of a stream in an epoch form one entry: their number and
the latest of their event times. The entry is dropped when the watermark has passed everything that these
tuples can join. In a count window, the times are numbers of tuples. A window may span any number of epochs,
so the two smallest neighbouring entries are merged when there are too many. Merged entries are kept longer,
by about a sixteenth of a window.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from thetastream.core.keys import Int64s, scramble
from thetastream.engine.multiway.graph import HopKey, HopOrder, list_streams
from thetastream.engine.multiway.selectivities import Refinement, Selectivities

CHANGE_BELOW = 0.8
"""A hop order is replaced if the best one has less than this share of its cost."""
DECAY = 0.98
"""The factor by which older counts are multiplied in each epoch."""
ENOUGH_COMPARISONS = 1 << 12
"""The number of comparisons after which a pair of streams needs no more trials."""
TRIAL_EVERY = 8
"""On average, one of this many tuples tries another first hop."""

Entry = tuple[int, int]
"""The latest event time in microseconds, and the number of tuples."""
MOST = 32
"""The largest number of entries of a stream."""


@dataclass
class HopMeasurements:
    """The measurements of all hops so far, which are equal at all nodes. The manifest keeps them."""

    orders: list[HopOrder] = field(default_factory=list)
    """The current hop order of each stream."""
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    """By hop (members, target), the comparisons of the last epoch. The partial results that they find arrive
    in the next epoch."""
    counts: list[tuple[int, int, float, float]] = field(default_factory=list)
    """By hop, the number of comparisons and of partial results found. Older epochs have smaller weights."""
    held: list[list[Entry]] = field(default_factory=list)
    """The entries of ``StoredCounts`` for each stream."""


class Refiner:
    """The hop orders of one epoch, and the counts from which they are chosen.

    Parameters
    ----------
    spec : Refinement
    planned : sequence of HopOrder
        The planned hop order of each stream.
    known : HopMeasurements or None
        The measurements before this epoch, from the state.
    """

    def __init__(self, spec: Refinement, planned: Sequence[HopOrder], known: HopMeasurements | None) -> None:
        known = known or HopMeasurements()
        self._spec = spec
        self._stored_counts = StoredCounts(spec.lifetimes_us, known.held)
        self._last_asked = {(members, target): n for members, target, n in known.asked}
        self._asked: dict[HopKey, int] = defaultdict(int)
        self._counts = {(members, target): (n, found) for members, target, n, found in known.counts}
        self.orders = [
            now if is_free else order
            for is_free, order, now in zip(spec.is_free, planned, known.orders or planned, strict=True)
        ]
        """The current hop order of each stream."""
        self._trials: list[HopOrder | None] = [None] * len(planned)

    @property
    def measured(self) -> HopMeasurements:
        """The measurements after this epoch."""
        asked = [(*step, n) for step, n in self._asked.items()]
        counts = [(*step, *found) for step, found in self._counts.items()]
        return HopMeasurements(self.orders, asked, counts, self._stored_counts.entries)

    def count_results(self, found: Iterable[tuple[HopKey, int]]) -> None:
        """Count the results of the hops of the last epoch, given as (hop, number of partial results)."""
        sums: dict[HopKey, int] = defaultdict(int)
        for step, n in found:
            sums[step] += n
        if not self._last_asked:
            return
        for step in sorted({*self._counts, *self._last_asked}):
            compared, matched = self._counts.get(step, (0.0, 0.0))
            self._counts[step] = (
                DECAY * compared + self._last_asked.get(step, 0),
                DECAY * matched + sums[step],
            )

    def count_results_at_once(self, found: Iterable[tuple[HopKey, int]]) -> None:
        """Count the comparisons of this epoch and their results, at a node that makes all hops itself."""
        self._last_asked, self._asked = dict(self._asked), defaultdict(int)
        self.count_results(found)

    def count_arrivals(self, newest: Iterable[tuple[int, int, int]], horizons: Sequence[int | None]) -> None:
        """Count new tuples, given as (stream, latest event time, number of tuples)."""
        self._stored_counts.expire(horizons)
        for stream, latest_us, n in newest:
            self._stored_counts.add(stream, latest_us, n)

    def count_comparisons(self, step: HopKey, n: int) -> None:
        """Count the comparisons of ``n`` partial results in a hop whose results all nodes will see."""
        self._asked[step] += n * self._stored_counts.count(step[1])

    def assign_trial(self, stream: int, tie_breakers: Int64s) -> tuple[HopOrder, Int64s] | None:
        """Choose the tuples of a stream that try another hop order.

        Return this hop order and the positions of the tuples. Their tie-breaking numbers decide which tuples
        try it.
        """
        order = self._trials[stream]
        if order is None:
            return None
        return order, np.flatnonzero(scramble(tie_breakers) % TRIAL_EVERY == 0)

    def choose(self) -> None:
        """Choose the hop orders of the tuples that begin in this epoch."""
        selectivities = Selectivities(self._spec, self._counts)
        costs = HopOrderCosts(
            selectivities, [max(self._stored_counts.count(stream), 1) for stream in range(len(self.orders))]
        )
        for stream, is_free in enumerate(self._spec.is_free):
            if not is_free:
                continue
            best, now = costs.find_best((stream,)), self.orders[stream]
            if costs.estimate_cost(stream, best) < CHANGE_BELOW * costs.estimate_cost(stream, now):
                self.orders[stream] = now = best
            pairs = [(selectivities.count_compared(1 << stream | 1 << t), t) for t in now[1:]]
            untried = [
                (n, t)
                for n, t in pairs
                if n < ENOUGH_COMPARISONS and self._spec.is_tied(1 << stream | 1 << t)
            ]
            first = min(untried)[1] if untried else None
            self._trials[stream] = None if first is None else (first, *costs.find_best((stream, first)))


class HopOrderCosts:
    """The cost of hop orders: the number of partial results that each sends.

    Parameters
    ----------
    selectivities : Selectivities
    held : sequence of int
        The number of stored tuples of each stream.

    Examples
    --------
    >>> from thetastream.engine.multiway.selectivities import Refinement
    >>> ties = ((0b011, 0.5), (0b110, 0.1))
    >>> costs = HopOrderCosts(Selectivities(Refinement((True,) * 3, ties, (None,) * 3), {}), [10, 10, 10])
    >>> costs.find_best((1,)), costs.estimate_cost(1, (2, 0)), costs.estimate_cost(1, (0, 2))
    ((2, 0), 10.0, 50.0)
    """

    def __init__(self, selectivities: Selectivities, held: Sequence[int]) -> None:
        self._selectivities = selectivities
        self._held = held
        self._all = (1 << len(held)) - 1

    def find_best(self, taken: Sequence[int]) -> HopOrder:
        """Find the best order in which to visit the streams that are not in ``taken``."""
        streams, order = sum(1 << stream for stream in taken), []
        while streams != self._all:
            target = self._next[streams][1]
            order.append(target)
            streams |= 1 << target
        return tuple(order)

    def estimate_cost(self, stream: int, order: HopOrder) -> float:
        """Sum W(S) over the hops. Up to a factor, it is the number of partial results of a tuple."""
        streams, total = 1 << stream, 0.0
        for target in order:
            streams |= 1 << target
            total += self._count_sent(streams)
        return total

    @cached_property
    def _next(self) -> dict[int, tuple[float, int]]:
        """For each set S, rest(S) and the stream to visit next. Among equal streams, it is the first."""
        found = {self._all: (0.0, -1)}
        for streams in range(self._all - 1, 0, -1):
            found[streams] = min(
                (self._count_sent(more) + found[more][0], target)
                for target in range(len(self._held))
                if (more := streams | 1 << target) != streams
            )
        return found

    def _count_sent(self, streams: int) -> float:
        """Compute W(S)."""
        if streams == self._all:
            return 0.0
        return self._selectivities.of(streams) * prod(self._held[stream] for stream in list_streams(streams))


class StoredCounts:
    """The number of stored tuples of each stream, over all nodes.

    Parameters
    ----------
    lifetimes_us : sequence of int or None
        For each stream, how long after its event time a tuple is kept; None means forever.
    entries : sequence of lists of (latest event time, number of tuples)
        The entries of each stream before this epoch, from the state.

    Examples
    --------
    >>> counts = StoredCounts([10], [[(0, 5)]])
    >>> counts.add(0, 4, 3)
    >>> counts.count(0)
    8
    >>> counts.expire([10])
    >>> counts.count(0), counts.entries
    (3, [[(4, 3)]])
    """

    def __init__(self, lifetimes_us: Sequence[int | None], entries: Sequence[Sequence[Entry]]) -> None:
        self._lifetimes_us = lifetimes_us
        self.entries = [list(stream) for stream in entries] or [[] for _ in lifetimes_us]

    def count(self, stream: int) -> int:
        """Count the stored tuples of a stream over all nodes."""
        return sum(n for _, n in self.entries[stream])

    def add(self, stream: int, latest_us: int, n: int) -> None:
        """Add the new tuples of a stream in an epoch."""
        entries = self.entries[stream]
        entries.append((latest_us, n))
        if len(entries) > MOST:
            least = min(range(MOST), key=lambda place: entries[place][1] + entries[place + 1][1])
            first, second = entries[least : least + 2]
            entries[least : least + 2] = [(max(first[0], second[0]), first[1] + second[1])]

    def expire(self, horizons: Sequence[int | None]) -> None:
        """Drop the entries of tuples that no new tuple can join, given the horizon of each stream."""
        lives = zip(self._lifetimes_us, horizons, strict=True)
        for stream, (lifetime_us, horizon) in enumerate(lives):
            if lifetime_us is not None and horizon is not None:
                self.entries[stream] = [
                    entry for entry in self.entries[stream] if entry[0] + lifetime_us > horizon
                ]
