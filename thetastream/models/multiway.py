"""What models of joins of any number of streams share: every node gets every new tuple and takes its share.

A model says three things and nothing else: which new tuples a node stores, which of what it stores a probe
asks for, and where partial results go on. Hops, order, purge and state are those of one node
(``thetastream.joiner.ring``).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from thetastream.errors import QueryError
from thetastream.keys import Int64s
from thetastream.models.base import Hashes, Model, Route, positive_pair
from thetastream.types import Role, Side
from thetastream.windows import Rows, micros

AUTO = "auto"


class Travel(Enum):
    """Where partial results look for their next partners."""

    ALL = "all nodes, in the next epoch"
    COVER = "the nodes that a cover names, in the next epoch"
    STAY = "the node that found them, in the same epoch"


class NewTuples(NamedTuple):
    """New tuples of one stream, none of them late."""

    stream: int
    sequence: Int64s
    """Their numbers in the stream."""
    times: Int64s
    """Event times in microseconds."""
    reach: Sequence[tuple[int | None, int | None]]
    """Per stream j: low and high of t_j - t, for t one of ``times`` and t_j any that can be in a result
    with it; None is open."""
    n_new: int = 0
    """New tuples of all streams in the epoch."""


class Asking(NamedTuple):
    """Probes: the event times that their partners may have, and a number each to take turns by."""

    earliest: Int64s
    latest: Int64s
    turns: Int64s


class Multiway(Model):
    """A model of joins of two streams or more, hop by hop."""

    nodes: int | str
    order: Mapping[str, Sequence[str]] | None
    in_flight: int | None = None
    """How many tuples may be under way at once."""
    travel: ClassVar[Travel] = Travel.ALL
    span_field: ClassVar[str]
    """Its field that cuts streams into stretches."""
    is_costed: ClassVar[bool] = False
    may_be_auto: ClassVar[bool] = False
    """Whether the planner can say how many nodes it has."""

    def _check(self) -> None:
        is_auto = self.may_be_auto and self.nodes == AUTO
        if not is_auto and (isinstance(self.nodes, tuple | list) or positive_pair(self.nodes) is None):
            what = 'a positive integer or "auto"' if self.may_be_auto else "a positive integer"
            raise QueryError("BAD_UNITS", f"nodes must be {what}, not {self.nodes!r}")
        name, span = self.span_field, self.span
        if isinstance(span, timedelta) and micros(span) <= 0:
            raise QueryError(f"BAD_{name.upper()}", f"{name} must be longer than nothing, not {span}")
        if self.order is not None and not isinstance(self.order, Mapping):
            raise QueryError(
                "BAD_HOPS", f'order must map aliases to the others, {{"a": ["c", "b"]}}, not {self.order!r}'
            )

    @property
    def span(self) -> Any:
        """How long a stretch is: text, a duration or a number of tuples."""
        return getattr(self, self.span_field)

    @property
    def span_us(self) -> int:
        """The same in microseconds of event time."""
        if not isinstance(self.span, timedelta):
            raise TypeError(f"a {self.span_field} that is text is read by the planner first")
        return micros(self.span)

    @property
    def n_units(self) -> int:
        if isinstance(self.nodes, str):
            raise TypeError("the planner says first how many nodes there are")
        return self.nodes

    def has_mailbox(self, n_streams: int) -> bool:
        """Whether there are partial results that wait for the next epoch."""
        return n_streams > 2 and self.travel is not Travel.STAY

    @property
    def n_parts(self) -> int:
        """Into how many parts, asked apart, a node's stored tuples of a stream fall."""
        return 1

    @property
    def sees_all(self) -> bool:
        return True

    def route(self, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
        for node in range(self.n_units):
            yield Route(node, Role.BOTH, None)

    def is_home(self, unit: int, side: Side) -> bool:
        return unit == 0

    def is_prompt(self, n_streams: int) -> bool:
        return n_streams == 2 and self.is_binary

    def numbered(self, aliases: Sequence[str]) -> "Multiway":
        """The model with streams by their numbers."""
        return self

    def timed(self, n_streams: int) -> Sequence[int]:
        """The streams that must have event times."""
        return () if isinstance(self.span, Rows) else range(n_streams)

    def takes(self, node: int, arrivals: NewTuples) -> Int64s:
        """The part of its store in which a node stores each tuple; -1: it does not."""
        raise NotImplementedError

    def asked(self, node: int, asking: Asking) -> Sequence[Int64s | None]:
        """Per part of a node's store the positions of the probes that ask for it; None: all do."""
        return (None,)


def stretches(times: Int64s, span_us: int) -> Int64s:
    """Numbers of the stretches in which event times lie.

    >>> stretches(np.array([-1, 0, 9, 10]), 10)
    array([-1,  0,  0,  1])
    """
    return np.floor_divide(times, span_us)
