"""Orders of hops that follow what is measured: of all ways to take streams in, the one that sends least.

Let J(S) be the share of combinations of one tuple of each stream of S that satisfy what the condition says
of S alone, and held(j) the number of tuples of stream j that there are to meet. A tuple of stream i that has
been joined with S - i has on average W(S) / held(i) partial results, and from S on it sends least with

    W(S) = J(S) * product of held(j), j in S
    rest(S) = min over t not in S of W(S + t) + rest(S + t),     rest(all) = 0, W(all) = 0

(the last hop finds results, whatever the order). held(i) is a factor of all its orders, so one table serves
the tuples of all streams.

*Measured.* n partial results over S that ask for t are compared with n * held(t) tuples; what comes of it is
seen in the next epoch: J(S + t) / J(S) = found / compared. Both count less with every epoch, and the plan's
estimate counts like ``PSEUDO`` matches. Sets that no hop has tried have their estimate times what their pairs
were off by. Of the pairs that something ties, one that has not been tried is, by a few tuples.

*Alike.* Every node sees all new tuples and all partial results, so it counts the same numbers and decides
alike without a message; a task that is run again, too. Messages come to nodes in any order: they are added up
as integers, and floats change hop by hop in one order, by sums, products and quotients alone, which are the
same on all machines. Nodes that differed would lose results.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from thetastream.joiner.census import Census, Entry
from thetastream.keys import Int64s, scramble

PSEUDO = 16.0
"""Matches that the plan's estimate of a share counts for."""
BETTER = 0.8
"""An order is changed for one that sends less than this share of what it sends."""
FORGET = 0.98
"""What an epoch's counts are worth an epoch later."""
ENOUGH = 1 << 12
"""Comparisons after which a pair counts as tried."""
TRIED = 8
"""One of so many tuples tries another first hop."""

Order = tuple[int, ...]
"""The other streams, in the order in which a tuple looks for partners."""
Step = tuple[int, int]
"""Members, a bit each, and target of a hop."""


@dataclass(frozen=True)
class Refinement:
    """Which orders may change, and what is assumed before anything is measured."""

    is_free: tuple[bool, ...]
    """Per stream: whether its order may change."""
    ties: tuple[tuple[int, float], ...]
    """Per conjunct the streams that it reads, a bit each, and its estimated selectivity."""
    lifetimes_us: tuple[int | None, ...]
    """Per stream how long after its event time a tuple is kept."""

    def estimate(self, streams: int) -> float:
        """J(S) as planned."""
        return prod(share for read, share in self.ties if read & streams == read)

    def is_tied(self, pair: int) -> bool:
        """Whether some conjunct reads just these two streams."""
        return any(read == pair for read, _ in self.ties)


@dataclass
class Measured:
    """What all nodes know of the hops so far, for the manifest."""

    orders: list[Order] = field(default_factory=list)
    """Per stream, as they are now."""
    asked: dict[Step, int] = field(default_factory=dict)
    """Comparisons of the last epoch, whose partial results come in the next one."""
    counts: dict[Step, tuple[float, float]] = field(default_factory=dict)
    """Comparisons and partial results found; older ones count less."""
    held: list[list[Entry]] = field(default_factory=list)
    """See ``Census``."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the manifest."""
        return {
            "orders": self.orders,
            "asked": [[*step, n] for step, n in self.asked.items()],
            "counts": [[*step, *counts] for step, counts in self.counts.items()],
            "held": self.held,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "Measured":
        """Inverse of ``as_json``."""
        return cls(
            [tuple(order) for order in values["orders"]],
            {(members, target): n for members, target, n in values["asked"]},
            {(members, target): (n, found) for members, target, n, found in values["counts"]},
            [[(latest, n) for latest, n in stream] for stream in values["held"]],
        )


class Shares:
    """J(S), of what is estimated and what is measured.

    Parameters
    ----------
    spec : Refinement
    counts : mapping of (members, target) to (comparisons, partial results found)

    Examples
    --------
    Two streams of which a third was estimated to join, and nine of ninety did:

    >>> shares = Shares(Refinement((True, True), ((3, 1 / 3),), (None, None)), {(1, 1): (90, 9)})
    >>> round(shares.of(3), 2)
    0.18
    """

    def __init__(self, spec: Refinement, counts: dict[Step, tuple[float, float]]) -> None:
        self._spec = spec
        self._counts = counts
        self._known: dict[int, float] = {}
        self._pairs = [1 << i | 1 << j for i, j in combinations(range(len(spec.is_free)), 2)]

    def of(self, streams: int) -> float:
        """J(S)."""
        if streams not in self._known:
            self._known[streams] = self._measured(streams)
        return self._known[streams]

    def compared(self, pair: int) -> float:
        """How often tuples of two streams were compared as first hops."""
        return self._pair_counts(pair)[0]

    def _measured(self, streams: int) -> float:
        members = bits(streams)
        if len(members) < 2:
            return 1.0
        if len(members) == 2:
            return _weighed(*self._pair_counts(streams), self._spec.estimate(streams))
        # The hop that completed the set most often says most.
        last = max(members, key=lambda t: (self._counts.get((streams ^ 1 << t, t), (0.0, 0.0))[0], t))
        before = streams ^ 1 << last
        counts = self._counts.get((before, last), (0.0, 0.0))
        return self.of(before) * _weighed(*counts, self._expected(streams) / self._expected(before))

    def _pair_counts(self, pair: int) -> tuple[float, float]:
        first, second = (self._counts.get((pair ^ 1 << t, t), (0.0, 0.0)) for t in bits(pair))
        return first[0] + second[0], first[1] + second[1]

    def _expected(self, streams: int) -> float:
        """The estimate of a set times what its pairs were off by."""
        inside = (pair for pair in self._pairs if pair & streams == pair)
        estimate = self._spec.estimate
        return estimate(streams) * prod(self.of(pair) / estimate(pair) for pair in inside)


class Refiner:
    """The orders of one epoch, and what is counted in it.

    Parameters
    ----------
    spec : Refinement
    planned : sequence of Order
        Per stream, before anything is measured.
    known : Measured or None
        From the state before this epoch.
    """

    def __init__(self, spec: Refinement, planned: Sequence[Order], known: Measured | None) -> None:
        known = known or Measured()
        self._spec = spec
        self._census = Census(spec.lifetimes_us, known.held)
        self._last_asked = known.asked
        self._asked: dict[Step, int] = defaultdict(int)
        self._counts = dict(known.counts)
        self.orders = [
            now if is_free else order
            for is_free, order, now in zip(spec.is_free, planned, known.orders or planned, strict=True)
        ]
        """Per stream."""
        self._trials: list[Order | None] = [None] * len(planned)

    @property
    def measured(self) -> Measured:
        """For the next epoch."""
        return Measured(self.orders, dict(self._asked), self._counts, self._census.entries)

    def count(self, found: Iterable[tuple[Step, int]]) -> None:
        """What the last epoch's hops found, as it comes back: (hop, partial results) each."""
        sums: dict[Step, int] = defaultdict(int)
        for step, n in found:
            sums[step] += n
        if not self._last_asked:
            return
        for step in sorted({*self._counts, *self._last_asked}):
            compared, matched = self._counts.get(step, (0.0, 0.0))
            self._counts[step] = (
                FORGET * compared + self._last_asked.get(step, 0),
                FORGET * matched + sums[step],
            )

    def arrived(self, newest: Iterable[tuple[int, int, int]], watermark_us: int | None) -> None:
        """New tuples: (stream, latest event time, how many) each."""
        self._census.expire(watermark_us)
        for stream, latest_us, n in newest:
            self._census.add(stream, latest_us, n)

    def asked(self, step: Step, n: int) -> None:
        """``n`` partial results look for partners, all of which come back."""
        self._asked[step] += n * self._census.held(step[1])

    def trial(self, stream: int, turns: Int64s) -> tuple[Order, Int64s] | None:
        """Another order, and the positions of the tuples of a stream that try it; ``turns`` say which."""
        order = self._trials[stream]
        if order is None:
            return None
        return order, np.flatnonzero(scramble(turns) % TRIED == 0)

    def choose(self) -> None:
        """Orders for the tuples that begin in this epoch."""
        shares = Shares(self._spec, self._counts)
        routes = Routes(shares, [max(self._census.held(stream), 1) for stream in range(len(self.orders))])
        for stream, is_free in enumerate(self._spec.is_free):
            if not is_free:
                continue
            best, now = routes.best((stream,)), self.orders[stream]
            if routes.cost(stream, best) < BETTER * routes.cost(stream, now):
                self.orders[stream] = now = best
            pairs = [(shares.compared(1 << stream | 1 << t), t) for t in now[1:]]
            untried = [(n, t) for n, t in pairs if n < ENOUGH and self._spec.is_tied(1 << stream | 1 << t)]
            first = min(untried)[1] if untried else None
            self._trials[stream] = None if first is None else (first, *routes.best((stream, first)))


class Routes:
    """The ways to take streams in, and what each sends.

    Parameters
    ----------
    shares : Shares
    held : sequence of int
        Tuples of each stream.

    Examples
    --------
    >>> ties = ((0b011, 0.5), (0b110, 0.1))
    >>> routes = Routes(Shares(Refinement((True,) * 3, ties, (None,) * 3), {}), [10, 10, 10])
    >>> routes.best((1,)), routes.cost(1, (2, 0)), routes.cost(1, (0, 2))
    ((2, 0), 10.0, 50.0)
    """

    def __init__(self, shares: Shares, held: Sequence[int]) -> None:
        self._shares = shares
        self._held = held
        self._all = (1 << len(held)) - 1

    def best(self, taken: Sequence[int]) -> Order:
        """The streams to take in after ``taken``."""
        streams, order = sum(1 << stream for stream in taken), []
        while streams != self._all:
            target = self._next[streams][1]
            order.append(target)
            streams |= 1 << target
        return tuple(order)

    def cost(self, stream: int, order: Order) -> float:
        """Sum of W(S), up to a factor the partial results of an origin's tuple."""
        streams, total = 1 << stream, 0.0
        for target in order:
            streams |= 1 << target
            total += self._sent(streams)
        return total

    @cached_property
    def _next(self) -> dict[int, tuple[float, int]]:
        """Per set rest(S) and the stream to take in; of equals the first."""
        found = {self._all: (0.0, -1)}
        for streams in range(self._all - 1, 0, -1):
            found[streams] = min(
                (self._sent(more) + found[more][0], target)
                for target in range(len(self._held))
                if (more := streams | 1 << target) != streams
            )
        return found

    def _sent(self, streams: int) -> float:
        """W(S)."""
        if streams == self._all:
            return 0.0
        return self._shares.of(streams) * prod(self._held[stream] for stream in bits(streams))


def bits(streams: int) -> list[int]:
    """The streams of a set.

    >>> bits(0b1010)
    [1, 3]
    """
    return [stream for stream in range(streams.bit_length()) if streams >> stream & 1]


def _weighed(compared: float, found: float, estimate: float) -> float:
    """A share, measured, with the estimate as ``PSEUDO`` matches."""
    return (found + PSEUDO) / (compared + PSEUDO / estimate)
