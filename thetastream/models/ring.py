"""The time-sliced ring (PSP: Wang, Rundensteiner, Ganguly and Bhatnagar, EDBT 2009 and VLDB 2009).

Window state is cut into disjoint slices. Slice k is stored on node k mod N and stays there until it has
expired. Every tuple is stored once. It visits all slices, and so do its partial results. Therefore the ring
joins any number of streams on any condition without copies of state. PSP moves slices around the ring past a
fixed head. Here slices stay and the head moves, which has the same effect: one exchange replaces the hops of
one revolution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s
from thetastream.core.spans import Rows
from thetastream.models.base import AUTO, CHANGEABLE, is_positive
from thetastream.models.multiway import Multiway, NewTuples, Travel, number_stretches

SLICE = Rows(4)
"""The default slice. Slices with a fixed number of tuples have equal sizes at all rates; PSP calls this
smoothing. They are small, so that a window of few tuples is spread over all nodes too."""
EPOCH, MAILBOX = "epoch", "mailbox"
"""The values of ``hops`` beside ``AUTO``."""


@dataclass(frozen=True)
class Ring(Multiway):
    """The ring: N nodes hold slices of all windows in turn. It joins two or more streams on any condition, in
    windows of event time or of the last n tuples.

    Parameters
    ----------
    nodes : int or "auto"
        The number of units. Each of them gets every tuple. The default, "auto", is the number with the lowest
        estimated cost.
    slice : th.Rows, str or timedelta, optional
        What a slice of a stream spans: a number of tuples, or event time. If it is left out, a slice is an
        eighth of a node's share of the window if ``statistics`` tell its size, and 4 tuples otherwise.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order of the hops. For streams that are not named,
        the order is estimated, and then refined as selectivities are measured.
    in_flight : int, optional
        For three streams and more: how many tuples may look for partners at once. The others are stored and
        wait for room. If it is left out, there is no limit.
    tuples_per_node : int, optional
        For three streams and more: the number of new tuples of an epoch that one node takes. New slices go to
        as few nodes as this allows. Nodes without new slices keep theirs until they expire (PSP's passive
        adjustment). If it is left out, new slices always go to all nodes.
    moves_tuples : bool, optional
        Whether old nodes move their tuples to the new ones when the number of nodes changes while the query
        runs (PSP's aggressive relocation). By default, tuples of a window stay until they expire, and tuples
        that never expire move.
    hops : "auto", "epoch" or "mailbox", optional
        For three streams and more: where partial results look for their next partners. With "epoch", it is at
        the same node and in the same epoch; all nodes then store all tuples but those of one stream. With
        "mailbox", it is at all nodes and in the next epoch, and every tuple is stored once. By default, the
        planner chooses, and ``explain`` says why. If nodes may change (``max_units``), it is the mailbox.

    Raises
    ------
    QueryError
        BAD_UNITS if ``nodes`` is not a positive integer. BAD_SLICE. BAD_HOPS if ``order`` is no mapping, or
        if ``hops`` is none of its values. BAD_LIMIT if ``in_flight`` or ``tuples_per_node`` is not a positive
        integer. BAD_MOVES if ``moves_tuples`` is neither true nor false.

    Examples
    --------
    >>> Ring(nodes=3).n_units
    3
    """

    nodes: int | str = AUTO
    slice: Rows | str | timedelta | None = field(default=None, metadata=CHANGEABLE)
    order: Mapping[str, Sequence[str]] | None = field(default=None, metadata=CHANGEABLE)
    in_flight: int | None = field(default=None, metadata=CHANGEABLE)
    tuples_per_node: int | None = field(default=None, metadata=CHANGEABLE)
    moves_tuples: bool = False
    hops: str = field(default=AUTO, metadata=CHANGEABLE, repr=False)
    name: ClassVar[str] = "ring"
    sizes: ClassVar[tuple[str, ...]] = ("nodes",)
    span_field: ClassVar[str] = "slice"
    may_be_auto: ClassVar[bool] = True
    measures_hops: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check()
        if not isinstance(self.slice, Rows | str | timedelta | None):
            raise QueryError(
                "BAD_SLICE", f'slice must be th.Rows(n) or a duration, as in "10 seconds", not {self.slice!r}'
            )
        for name in ("in_flight", "tuples_per_node"):
            limit = getattr(self, name)
            if limit is not None and not is_positive(limit):
                raise QueryError("BAD_LIMIT", f"{name} must be a positive integer, not {limit!r}")
        if not isinstance(self.moves_tuples, bool):
            raise QueryError("BAD_MOVES", f"moves_tuples must be True or False, not {self.moves_tuples!r}")
        if self.hops not in (AUTO, EPOCH, MAILBOX):
            raise QueryError("BAD_HOPS", f'hops must be "auto", "epoch" or "mailbox", not {self.hops!r}')

    @property
    def keeps_arrival_order(self) -> bool:
        return True  # all nodes receive all tuples and all partial results

    @property
    def on_batch(self) -> "Ring":
        return replace(
            self, order=None
        )  # batch joins take two streams at a time, which have one hop order only

    @property
    def on_one_node(self) -> "Ring":
        return replace(self, nodes=1, in_flight=None)  # no tuple may wait for a later epoch

    def store_once(self, stream: int) -> "OneEpochRing":
        """Return the ring that makes all hops in one epoch, and stores only the tuples of ``stream`` once."""
        return OneEpochRing(**{one.name: getattr(self, one.name) for one in fields(Ring)}, stored_once=stream)

    def with_slices(self, n_tuples: int) -> "Ring":
        return self if self.slice is not None else replace(self, slice=Rows(n_tuples))

    @property
    def span(self) -> Rows | str | timedelta:
        return SLICE if self.slice is None else self.slice

    def keeps(self, unit: int, sequence: Int64s, times: Int64s) -> npt.NDArray[np.bool_]:
        mine: npt.NDArray[np.bool_] = self._slices(sequence, times) % self.n_units == unit
        return mine

    def _slices(self, sequence: Int64s, times: Int64s) -> Int64s:
        span = self.span
        return sequence // span.n if isinstance(span, Rows) else number_stretches(times, self.span_us)

    def assign_parts(self, node: int, arrivals: NewTuples) -> Int64s:
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


@dataclass(frozen=True)
class OneEpochRing(Ring):
    """The ring whose nodes make all hops of a tuple in the epoch in which it arrives.

    The slices of one stream lie on the nodes in turn. All nodes store the tuples of the other streams. A
    result has exactly one tuple of the sliced stream, so exactly one node finds it: the one that stores this
    tuple. Users get this ring with ``Ring(hops="epoch")``.

    Examples
    --------
    >>> ring = Ring(nodes=3).store_once(1)
    >>> ring.stored_once, ring.travel.value
    (1, 'the node that found them, in the same epoch')
    """

    stored_once: int = 0
    """The number of the stream that is sliced."""
    travel: ClassVar[Travel] = Travel.STAY

    def __repr__(self) -> str:
        return repr(Ring(**{one.name: getattr(self, one.name) for one in fields(Ring)}))

    def resume(self, stored_once: int | None) -> "OneEpochRing":
        return self if stored_once is None else replace(self, stored_once=stored_once)

    def assign_parts(self, node: int, arrivals: NewTuples) -> Int64s:
        if arrivals.stream == self.stored_once:
            return super().assign_parts(node, arrivals)
        return np.zeros(len(arrivals.sequence), dtype=np.int64)

    def describe(self) -> str:
        span = self.span
        what = f"{span.n} tuples" if isinstance(span, Rows) else f"{span} of event time"
        return (
            f"ring: {self.nodes} node(s), slices of {what} of stream {self.stored_once} in turn; tuples of "
            "other streams are at all nodes"
        )
