"""The condition of an m-way join as a graph of streams, whose edges are the conditions on two streams.

An edge has the same parts as a binary condition (``thetastream.core.condition``). Its left side is the stream
with the lower number. Python predicates may read any number of streams. A set of streams is a bit set, and a
hop is named by the set of streams that are joined already and the stream that comes next.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from thetastream.core.columns import BORN, name_seen_column
from thetastream.core.condition import Bound, Dimension, Equality, SideSpec
from thetastream.core.sides import Side

HopOrder = tuple[int, ...]
"""The other streams, in the order in which a tuple visits them."""
HopKey = tuple[int, int]
"""The members of a hop as a bit set, and its target."""


class Ends(NamedTuple):
    """The bounds of ``low <= left.ts - right.ts <= high`` in microseconds. None leaves an end open."""

    low: int | None = None
    high: int | None = None

    def turn(self) -> "Ends":
        """Compute the bounds of ``right.ts - left.ts``.

        >>> Ends(-5, None).turn()
        Ends(low=None, high=5)
        """
        return Ends(None if self.high is None else -self.high, None if self.low is None else -self.low)


OPEN = Ends()


@dataclass(frozen=True)
class Edge:
    """The condition on two streams. Key positions refer to the ``SideSpec`` of each stream."""

    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    window: Ends = OPEN
    same: tuple[tuple[str, str], ...] = ()
    """Pairs of payload columns (left, right) whose values must be the same bytes. The index compares their
    hashes only."""

    def turn(self) -> "Edge":
        """Exchange the sides of the edge."""
        return Edge(
            tuple(replace(e, left=e.right, right=e.left) for e in self.equalities),
            tuple(replace(d, point=d.point.other) for d in self.dimensions),
            self.window.turn(),
            tuple((right, left) for left, right in self.same),
        )

    def shift_left_keys(self, n: int) -> "Edge":
        """Add ``n`` to the key positions of the left side, because ``n`` other keys precede them."""

        def move(bound: Bound | None) -> Bound | None:
            return None if bound is None else replace(bound, key=bound.key + n)

        return replace(
            self,
            equalities=tuple(replace(e, left=e.left + n) for e in self.equalities),
            dimensions=tuple(
                replace(d, key=d.key + n)
                if d.point is Side.LEFT
                else replace(d, low=move(d.low), high=move(d.high))
                for d in self.dimensions
            ),
        )


NO_EDGE = Edge()


@dataclass(frozen=True)
class GraphPredicate:
    """A vectorised Python function over candidates of several streams.

    For each stream that the function reads, ``columns`` lists its number, its alias and its pairs of
    (argument column, block column).
    """

    name: str
    function: Callable[..., Any]
    columns: tuple[tuple[int, str, tuple[tuple[str, str], ...]], ...]
    is_encoded: bool = False
    """Whether the function receives dictionary-encoded columns."""
    version: str = ""
    """The version that the user gave the function; empty without one."""

    @property
    def streams(self) -> frozenset[int]:
        """The streams that the function reads."""
        return frozenset(stream for stream, _, _ in self.columns)


@dataclass(frozen=True)
class JoinGraph:
    """The condition of an m-way join without the residual filters that Catalyst evaluates after the join."""

    sides: tuple[SideSpec, ...]
    edges: Mapping[tuple[int, int], Edge]
    """The edges by (lower, higher) stream number. The condition says nothing about pairs without an edge."""
    predicates: tuple[GraphPredicate, ...] = ()
    counts: tuple[int, ...] | None = None
    """The sizes of count windows: how many tuples of each stream stay joinable. The edges then have no
    windows. None without count windows."""

    @property
    def origin_columns(self) -> tuple[str, ...]:
        """The block columns of a partial result that tell which tuples come before its origin."""
        seen = () if self.counts is None else map(name_seen_column, range(len(self.sides)))
        return BORN, *seen

    def edge(self, left: int, right: int) -> Edge:
        """Return the condition on two streams with ``left`` on the left side, whichever number is lower."""
        found = self.edges.get((min(left, right), max(left, right)), NO_EDGE)
        return found if left < right else found.turn()

    def lifetime_us(self, stream: int) -> int | None:
        """Compute how long after its event time a tuple may find partners; None means forever.

        In a count window, the times are numbers of tuples.
        """
        if self.counts is not None:
            return self.counts[stream]
        waits = [ends.high for other, ends in enumerate(self.reach(stream)) if other != stream]
        known = [high for high in waits if high is not None]
        return max(0, *known) if len(known) == len(waits) else None

    def reach(self, stream: int) -> tuple[Ends, ...]:
        """Compute low and high of ``low <= t_j - t <= high`` for each stream j.

        t and t_j are event times of ``stream`` and of stream j in one result. Windows add up along a path
        a -> b -> c, and the shortest path gives the bound.
        """
        return tuple(
            Ends(None if (low := self._farthest(stream, j)) is None else -low, self._farthest(j, stream))
            for j in range(len(self.sides))
        )

    def _most(self, left: int, right: int) -> int | None:
        """The largest ``left.ts - right.ts`` that the edge between the streams allows; None if unbounded."""
        if left < right:
            return self.edges.get((left, right), NO_EDGE).window.high
        return self.edges.get((right, left), NO_EDGE).window.turn().high

    def _farthest(self, later: int, earlier: int) -> int | None:
        """The largest ``later.ts - earlier.ts`` that all edges together allow; None if it is unbounded."""
        reached = {earlier: 0}
        for _ in self.sides:
            for middle, so_far in list(reached.items()):
                for other in range(len(self.sides)):
                    step = None if other == middle else self._most(other, middle)
                    if step is not None and so_far + step < reached.get(other, so_far + step + 1):
                        reached[other] = so_far + step
        return 0 if later == earlier else reached.get(later)


def list_streams(streams: int) -> list[int]:
    """List the streams of a bit set.

    >>> list_streams(0b1010)
    [1, 3]
    """
    return [stream for stream in range(streams.bit_length()) if streams >> stream & 1]
