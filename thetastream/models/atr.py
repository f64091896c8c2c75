"""Aligned tuple routing (Gu, Yu and Wang, ICDE 2007), a baseline of PSP.

One stream is the master. Its tuples are cut into segments of event time, segment k belongs to node k mod N,
and with it go copies of all tuples of the other streams, the slaves, that can be in a result with one of the
segment. So a node joins its segments by itself, all hops in one epoch, and as a result has exactly one
master tuple, it is found once. The price are the copies: with windows W of a slave before and after, and
segments of length T, a slave tuple lies on min(N, 1 + W / T) nodes; slaves that no window ties to the master
lie on all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import numpy as np

from thetastream.condition import Domain
from thetastream.errors import QueryError
from thetastream.keys import Int64s, shift
from thetastream.models.multiway import Multiway, NewTuples, Travel, stretches

SEGMENT = "10 seconds"


@dataclass(frozen=True)
class ATR(Multiway):
    """A baseline: N nodes that hold segments of a master stream and copies of what can join them.

    Parameters
    ----------
    nodes : int
        Units that get every tuple and store their share.
    segment : str or timedelta, optional
        Event time that one segment of the master spans.
    master : str or int, optional
        Alias or number of the stream whose tuples are not copied; the first one by default.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order in which their partners are looked for.

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
    is_binary: ClassVar[bool] = False
    travel: ClassVar[Travel] = Travel.STAY
    span_field: ClassVar[str] = "segment"

    def __post_init__(self) -> None:
        self._check()
        check_segment(self.segment)

    def numbered(self, aliases: Sequence[str]) -> "ATR":
        if type(self.master) is int and self.master in range(len(aliases)):
            return self
        folded = [alias.casefold() for alias in aliases]
        if str(self.master).casefold() not in folded:
            raise QueryError("BAD_MASTER", f"master must be one of {', '.join(aliases)}, not {self.master!r}")
        return replace(self, master=folded.index(str(self.master).casefold()))

    def timed(self, n_streams: int) -> Sequence[int]:
        return (int(self.master),)

    def takes(self, node: int, arrivals: NewTuples) -> Int64s:
        times, span = arrivals.times, self.span_us
        if arrivals.stream == self.master:
            return _part(stretches(times, span) % self.nodes == node)
        low, high = arrivals.reach[int(self.master)]
        if low is None or high is None:
            return np.zeros(len(times), dtype=np.int64)
        first = stretches(shift(times, low, Domain.INT, -1)[0], span)
        last = stretches(shift(times, high, Domain.INT, +1)[0], span)
        touches = (node - first % self.nodes) % self.nodes <= last - first
        return _part(touches | (last >= first + self.nodes))

    def describe(self) -> str:
        return (
            f"aligned tuple routing: {self.nodes} node(s), segments of {self.segment} of stream "
            f"{self.master}; others' tuples are copied"
        )


def _part(is_mine: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Int64s:
    return np.where(is_mine, np.int64(0), np.int64(-1))


def check_segment(segment: object) -> None:
    """Raise BAD_SEGMENT unless it is a duration."""
    if not isinstance(segment, str | timedelta):
        raise QueryError("BAD_SEGMENT", f'segment must be a duration, as in "10 seconds", not {segment!r}')
