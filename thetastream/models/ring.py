"""The time-sliced ring (PSP: Wang, Rundensteiner, Ganguly and Bhatnagar, EDBT 2009 and VLDB 2009).

Window state is cut into disjoint slices; slice k lies on node k mod N and stays there until it has expired.
Every tuple is stored once and visits all slices, and so does what it has been joined with so far: the ring
joins any number of streams on any condition without a copy of state. PSP moves slices around the ring under a
fixed head; here slices stay and the head moves, which is the same seen from the rotating frame, and the hops
of one revolution are one exchange.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Route, positive_pair
from thetastream.types import Role, Side
from thetastream.windows import Rows, micros

AUTO = "auto"
SLICE = Rows(64)
"""Slices that are bounded by a count are even whatever the rates of the streams: PSP's smoothing."""


@dataclass(frozen=True)
class Ring(Model):
    """N nodes that hold the slices of all windows in turn; two streams or more, any condition.

    Parameters
    ----------
    nodes : int or "auto"
        Units that get every tuple; "auto", the default: as many as ``thetastream.plan.cost_ring`` finds best.
    slice : th.Rows, str or timedelta, optional
        What one slice spans of a stream: a number of its tuples or event time; an eighth of a node's share of
        the window if ``statistics`` say how much that is, else 64 tuples.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order in which their partners are looked for; chosen
        by estimated selectivity for streams that are not named.
    in_flight : int, optional
        Of three streams and more: how many tuples may look for partners at once. The others wait, stored
        already, and do so as there is room; any number when left out.

    Raises
    ------
    QueryError
        BAD_UNITS if ``nodes`` is not a positive integer, BAD_SLICE, BAD_HOPS if ``order`` is no mapping,
        BAD_LIMIT if ``in_flight`` is not a positive integer.

    Examples
    --------
    >>> Ring(nodes=3).n_units
    3
    """

    nodes: int | str = AUTO
    slice: Rows | str | timedelta | None = None
    order: Mapping[str, Sequence[str]] | None = None
    in_flight: int | None = None
    name: ClassVar[str] = "ring"

    def __post_init__(self) -> None:
        if self.nodes != AUTO and (isinstance(self.nodes, tuple | list) or positive_pair(self.nodes) is None):
            raise QueryError("BAD_UNITS", f'nodes must be a positive integer or "auto", not {self.nodes!r}')
        if not isinstance(self.slice, Rows | str | timedelta | None):
            raise QueryError(
                "BAD_SLICE", f'slice must be th.Rows(n) or a duration, as in "10 seconds", not {self.slice!r}'
            )
        if isinstance(self.slice, timedelta) and micros(self.slice) <= 0:
            raise QueryError("BAD_SLICE", f"slice must be longer than nothing, not {self.slice}")
        if self.order is not None and not isinstance(self.order, Mapping):
            raise QueryError(
                "BAD_HOPS", f'order must map aliases to the others, {{"a": ["c", "b"]}}, not {self.order!r}'
            )

        if self.in_flight is not None and (
            isinstance(self.in_flight, tuple | list) or positive_pair(self.in_flight) is None
        ):
            raise QueryError("BAD_LIMIT", f"in_flight must be a positive integer, not {self.in_flight!r}")

    @property
    def n_units(self) -> int:
        if isinstance(self.nodes, str):
            raise TypeError("the planner says first how many nodes a ring has")
        return self.nodes

    @property
    def sees_all(self) -> bool:
        return True

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        for node in range(self.n_units):
            yield Route(node, Role.BOTH, None)

    def is_home(self, unit: int, side: Side) -> bool:
        return unit == 0

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        span = self.slice or SLICE
        if isinstance(span, str):
            raise TypeError("the planner reads a slice that is text first")
        slices = sequence // span.n if isinstance(span, Rows) else times // micros(span)
        mine: npt.NDArray[np.bool_] = slices % self.n_units == unit
        return mine

    def describe(self) -> str:
        span = self.slice or SLICE
        what = f"{span.n} tuples" if isinstance(span, Rows) else f"{span} of event time"
        return (
            f"ring: {self.nodes} node(s), slices of {what} in turn; every tuple is stored once and visits all"
        )
