"""The time-sliced ring (PSP: Wang, Rundensteiner, Ganguly and Bhatnagar, EDBT 2009 and VLDB 2009).

Window state is cut into disjoint slices; slice k lies on node k mod N and stays there until it has expired.
Every tuple is stored once and visits all slices, and so does what it has been joined with so far: the ring
joins any number of streams on any condition without a copy of state. PSP moves slices around the ring under a
fixed head; here slices stay and the head moves, which is the same seen from the rotating frame, and the hops
of one revolution are one exchange.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import positive_pair
from thetastream.models.multiway import AUTO, Multiway, NewTuples, stretches
from thetastream.windows import Rows

SLICE = Rows(64)
"""Slices that are bounded by a count are even whatever the rates of the streams: PSP's smoothing."""


@dataclass(frozen=True)
class Ring(Multiway):
    """N nodes that hold the slices of all windows in turn; two streams or more, any condition.

    Parameters
    ----------
    nodes : int or "auto"
        Units that get every tuple; "auto", the default: as many as ``thetastream.plan.cost_ring`` finds best.
    slice : th.Rows, str or timedelta, optional
        What one slice spans of a stream: a number of its tuples or event time; an eighth of a node's share of
        the window if ``statistics`` say how much that is, else 64 tuples.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order in which their partners are looked for. Of
        streams that are not named it is estimated, and then refined as selectivities are measured.
    in_flight : int, optional
        Of three streams and more: how many tuples may look for partners at once. The others wait, stored
        already, and do so as there is room; any number when left out.
    tuples_per_node : int, optional
        Of three streams and more: new slices go to as few of the nodes as have this many of an epoch's new
        tuples to take each. Nodes that get no new slices keep theirs until they expire (PSP's passive
        adjustment). All nodes, always, when left out.

    Raises
    ------
    QueryError
        BAD_UNITS if ``nodes`` is not a positive integer, BAD_SLICE, BAD_HOPS if ``order`` is no mapping,
        BAD_LIMIT if ``in_flight`` or ``tuples_per_node`` is not a
        positive integer.

    Examples
    --------
    >>> Ring(nodes=3).n_units
    3
    """

    nodes: int | str = AUTO
    slice: Rows | str | timedelta | None = None
    order: Mapping[str, Sequence[str]] | None = None
    in_flight: int | None = None
    tuples_per_node: int | None = None
    name: ClassVar[str] = "ring"
    span_field: ClassVar[str] = "slice"
    may_be_auto: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check()
        if not isinstance(self.slice, Rows | str | timedelta | None):
            raise QueryError(
                "BAD_SLICE", f'slice must be th.Rows(n) or a duration, as in "10 seconds", not {self.slice!r}'
            )
        for name in ("in_flight", "tuples_per_node"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, tuple | list) or positive_pair(limit) is None):
                raise QueryError("BAD_LIMIT", f"{name} must be a positive integer, not {limit!r}")

    @property
    def kept(self) -> "Ring":
        return Ring(self.nodes)

    @property
    def span(self) -> Rows | str | timedelta:
        return SLICE if self.slice is None else self.slice

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = self._slices(sequence, times) % self.n_units == unit
        return mine

    def _slices(self, sequence: Int64s, times: Int64s) -> Int64s:
        span = self.span
        return sequence // span.n if isinstance(span, Rows) else stretches(times, self.span_us)

    def takes(self, node: int, arrivals: NewTuples) -> Int64s:
        active = self.n_units
        if self.tuples_per_node is not None:
            active = max(1, min(active, -(-arrivals.n_new // self.tuples_per_node)))
        is_mine = self._slices(arrivals.sequence, arrivals.times) % active == node
        return np.where(is_mine, np.int64(0), np.int64(-1))

    def describe(self) -> str:
        span = self.span
        what = f"{span.n} tuples" if isinstance(span, Rows) else f"{span} of event time"
        return (
            f"ring: {self.nodes} node(s), slices of {what} in turn; every tuple is stored once and visits all"
        )
