"""The costs of hop orders: how many partial results each of them sends.

Let held(j) be the number of stored tuples of stream j. A tuple of stream i that has been joined with the
other streams of S has W(S) / held(i) partial results on average. From S on, the smallest number of partial
results to send is

    W(S) = J(S) * product of held(j), j in S
    rest(S) = min over t not in S of W(S + t) + rest(S + t),     rest(all) = 0, W(all) = 0

The value of W(all) is 0, because the last hop finds results, which are the same in every hop order. held(i)
is a factor of all hop orders of stream i, so one table of rest(S) serves the tuples of all streams.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod

from thetastream.engine.multiway.selectivities import Selectivities
from thetastream.engine.multiway.stream_sets import HopOrder, list_streams


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
