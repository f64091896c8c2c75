"""Aligned tuple routing (Gu, Yu and Wang, ICDE 2007), a baseline of PSP.

One stream is the master. Its tuples are cut into segments of event time, and segment k belongs to node k mod
N. The node also stores copies of the tuples of the other streams, the slaves, that can be in a result with a
tuple of the segment. So a node joins its segments by itself and makes all hops in one epoch. A result has
exactly one master tuple, so it is found once. The price is the number of copies: if the window of a slave
around the master spans W in total and segments span T, a slave tuple is stored on min(N, 1 + W / T) nodes on
average. A slave is stored on all nodes if no window bounds its distance from the master. A tuple is sent only
to the nodes that store it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import numpy as np

from thetastream.core.condition import Domain
from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s, Mask, shift
from thetastream.models.multiway import Multiway, NewTuples, RoutedTuples, Travel, number_stretches
from thetastream.models.ring import Ring

SEGMENT = "10 seconds"
FARTHEST = 1 << 60
"""The largest number of a segment. Numbers beyond it become this number, so that sums cannot overflow."""


@dataclass(frozen=True)
class ATR(Multiway):
    """A baseline: N nodes hold segments of a master stream, and copies of the tuples that can join them.

    Parameters
    ----------
    nodes : int
        Units. A tuple goes only to those that store it.
    segment : str or timedelta, optional
        The event time that one segment of the master spans.
    master : str or int, optional
        Alias or number of the stream whose tuples are not copied. It is the first one by default.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order of the hops.

    Raises
    ------
    QueryError
        BAD_UNITS if ``nodes`` is not a positive integer, BAD_SEGMENT, BAD_MASTER, BAD_HOPS.

    Examples
    --------
    >>> ATR(nodes=3, segment="1 minute").describe()
    "aligned tuple routing: 3 node(s), segments of 1 minute of stream 0; others' tuples are copied"
    """

    nodes: int = 1
    segment: str | timedelta = SEGMENT
    master: str | int = 0
    order: Mapping[str, Sequence[str]] | None = None
    name: ClassVar[str] = "atr"
    sizes: ClassVar[tuple[str, ...]] = ("nodes",)
    runs_as_unit: ClassVar[bool] = False
    travel: ClassVar[Travel] = Travel.STAY
    span_field: ClassVar[str] = "segment"
    chooses_receivers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check()
        check_segment(self.segment)

    @property
    def on_batch(self) -> Ring:
        return Ring(self.nodes)

    def resolve_aliases(self, aliases: Sequence[str]) -> "ATR":
        if type(self.master) is int and self.master in range(len(aliases)):
            return self
        folded = [alias.casefold() for alias in aliases]
        if str(self.master).casefold() not in folded:
            raise QueryError("BAD_MASTER", f"master must be one of {', '.join(aliases)}, not {self.master!r}")
        return replace(self, master=folded.index(str(self.master).casefold()))

    def list_cut_streams(self, n_streams: int) -> Sequence[int]:
        return (int(self.master),)

    def assign_parts(self, node: int, arrivals: NewTuples) -> Int64s:
        return np.where(self._are_stored(arrivals)[node], np.int64(0), np.int64(-1))

    def choose_receivers(self, arrivals: RoutedTuples) -> Mask:
        are_counted = np.array([self.is_counted(node, arrivals) for node in range(self.nodes)])
        receivers: Mask = self._are_stored(arrivals) | are_counted
        return receivers

    def choose_probed(self, arrivals: RoutedTuples) -> Mask:
        return self._are_stored(arrivals)

    def is_counted(self, node: int, arrivals: RoutedTuples) -> Mask:
        first, _ = self._find_segments(arrivals)
        is_first: Mask = first % self.nodes == node
        return is_first

    def _are_stored(self, arrivals: RoutedTuples | NewTuples) -> Mask:
        """Choose the nodes with a segment in the reach of each tuple, as an array (nodes, tuples)."""
        first, last = self._find_segments(arrivals)
        touches: Mask = (np.arange(self.nodes)[:, None] - first) % self.nodes <= last - first
        return touches

    def _find_segments(self, arrivals: RoutedTuples | NewTuples) -> tuple[Int64s, Int64s]:
        """Find the first and the last segment of the master in whose reach each tuple is."""
        times = arrivals.times
        low, high = (0, 0) if arrivals.stream == self.master else arrivals.reach[int(self.master)]
        if low is None or high is None:
            return np.zeros(len(times), dtype=np.int64), np.full(len(times), self.nodes - 1)
        ends = (shift(times, end, Domain.INT, towards)[0] for end, towards in ((low, -1), (high, +1)))
        first, last = (np.clip(number_stretches(end, self.span_us), -FARTHEST, FARTHEST) for end in ends)
        return first, last

    def describe(self) -> str:
        return (
            f"aligned tuple routing: {self.nodes} node(s), segments of {self.segment} of stream "
            f"{self.master}; others' tuples are copied"
        )


def check_segment(segment: object) -> None:
    """Raise BAD_SEGMENT unless ``segment`` is a duration."""
    if not isinstance(segment, str | timedelta):
        raise QueryError("BAD_SEGMENT", f'segment must be a duration, as in "10 seconds", not {segment!r}')
