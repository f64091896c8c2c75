"""Selectivities of sets of streams, from the estimates of the plan and from measured hops.

Let J(S) be the selectivity of a set S of streams: of all combinations of one tuple from each stream of S, the
share that satisfies the conjuncts over S. If n partial results over S look for partners in t, they are
compared with n * held(t) tuples. The nodes see the results of this hop in the next epoch, and then

    J(S + t) / J(S) = found / compared

The estimate of the plan has the weight of ``PRIOR_MATCHES`` matches. If no hop has completed a set, its
estimate is multiplied by the errors of the estimates of its pairs.
"""

from dataclasses import dataclass
from itertools import combinations
from math import prod

from thetastream.engine.multiway.graph import HopKey, list_streams

PRIOR_MATCHES = 16.0
"""The weight of the estimate of the plan, in matches."""


@dataclass(frozen=True)
class Refinement:
    """The hop orders that may change, and the estimates that hold before the first measurement."""

    is_free: tuple[bool, ...]
    """For each stream, whether its hop order may change."""
    ties: tuple[tuple[int, float], ...]
    """For each conjunct, the streams that it reads, as a bit set, and its estimated selectivity."""
    lifetimes_us: tuple[int | None, ...]
    """For each stream, how long after its event time a tuple is kept. None means forever."""

    def estimate(self, streams: int) -> float:
        """Estimate J(S) from the conjuncts over S."""
        return prod(share for read, share in self.ties if read & streams == read)

    def is_tied(self, pair: int) -> bool:
        """Whether some conjunct reads exactly these two streams."""
        return any(read == pair for read, _ in self.ties)


class Selectivities:
    """The selectivities J(S), computed from estimates and measurements.

    Parameters
    ----------
    spec : Refinement
    counts : mapping of (members, target) to (comparisons, partial results found)

    Examples
    --------
    For two streams, the estimate is a third, and nine of ninety comparisons matched:

    >>> estimates = Refinement((True, True), ((3, 1 / 3),), (None, None))
    >>> round(Selectivities(estimates, {(1, 1): (90, 9)}).of(3), 2)
    0.18
    """

    def __init__(self, spec: Refinement, counts: dict[HopKey, tuple[float, float]]) -> None:
        self._spec = spec
        self._counts = counts
        self._known: dict[int, float] = {}
        self._pairs = [1 << i | 1 << j for i, j in combinations(range(len(spec.is_free)), 2)]

    def of(self, streams: int) -> float:
        """Return J(S)."""
        if streams not in self._known:
            self._known[streams] = self._compute(streams)
        return self._known[streams]

    def count_compared(self, pair: int) -> float:
        """Count how many tuples of two streams were compared in first hops."""
        return self._pair_counts(pair)[0]

    def _compute(self, streams: int) -> float:
        members = list_streams(streams)
        if len(members) < 2:
            return 1.0
        if len(members) == 2:
            return _weigh(*self._pair_counts(streams), self._spec.estimate(streams))
        # Use the hop that completed the set with the most comparisons.
        last = max(members, key=lambda t: (self._counts.get((streams ^ 1 << t, t), (0.0, 0.0))[0], t))
        before = streams ^ 1 << last
        counts = self._counts.get((before, last), (0.0, 0.0))
        return self.of(before) * _weigh(
            *counts, self._correct_estimate(streams) / self._correct_estimate(before)
        )

    def _pair_counts(self, pair: int) -> tuple[float, float]:
        first, second = (self._counts.get((pair ^ 1 << t, t), (0.0, 0.0)) for t in list_streams(pair))
        return first[0] + second[0], first[1] + second[1]

    def _correct_estimate(self, streams: int) -> float:
        """Multiply the estimate of a set by the errors of the estimates of its pairs."""
        inside = (pair for pair in self._pairs if pair & streams == pair)
        estimate = self._spec.estimate
        return estimate(streams) * prod(self.of(pair) / estimate(pair) for pair in inside)


def _weigh(compared: float, found: float, estimate: float) -> float:
    """Combine a measured share with an estimate that has the weight of ``PRIOR_MATCHES`` matches."""
    return (found + PRIOR_MATCHES) / (compared + PRIOR_MATCHES / estimate)
