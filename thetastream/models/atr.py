"""Aligned tuple routing (Gu, Yu and Wang, ICDE 2007), a baseline of PSP.

One stream is the master. Its tuples are cut into segments of event time, and segment k belongs to node k mod
N. The node also stores copies of the tuples of the other streams, the slaves, that can be in a result with a
tuple of the segment. So a node joins its segments by itself and makes all hops in one epoch. A result has
exactly one master tuple, so it is found once. The price is the number of copies: if the window of a slave
around the master spans W in total and segments span T, a slave tuple is stored on min(N, 1 + W / T) nodes. A
slave is stored on all nodes if no window bounds its distance from the master.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import numpy as np

from thetastream.core.condition import Domain
from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s, shift
from thetastream.models.multiway import Multiway, NewTuples, Travel, number_stretches
from thetastream.models.ring import Ring

SEGMENT = "10 seconds"


@dataclass(frozen=True)
class ATR(Multiway):
    """A baseline: N nodes hold segments of a master stream, and copies of the tuples that can join them.

    Parameters
    ----------
    nodes : int
        Units. Each of them gets every tuple and stores its share.
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
        times, span = arrivals.times, self.span_us
        if arrivals.stream == self.master:
            return _to_parts(number_stretches(times, span) % self.nodes == node)
        low, high = arrivals.reach[int(self.master)]
        if low is None or high is None:
            return np.zeros(len(times), dtype=np.int64)
        first = number_stretches(shift(times, low, Domain.INT, -1)[0], span)
        last = number_stretches(shift(times, high, Domain.INT, +1)[0], span)
        touches = (node - first % self.nodes) % self.nodes <= last - first
        return _to_parts(touches | (last >= first + self.nodes))

    def describe(self) -> str:
        return (
            f"aligned tuple routing: {self.nodes} node(s), segments of {self.segment} of stream "
            f"{self.master}; others' tuples are copied"
        )


def _to_parts(is_mine: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Int64s:
    return np.where(is_mine, np.int64(0), np.int64(-1))


def check_segment(segment: object) -> None:
    """Raise BAD_SEGMENT unless ``segment`` is a duration."""
    if not isinstance(segment, str | timedelta):
        raise QueryError("BAD_SEGMENT", f'segment must be a duration, as in "10 seconds", not {segment!r}')
