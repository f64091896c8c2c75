"""The condition of an m-way join: streams are nodes, what two of them must satisfy is an edge.

An edge holds what the binary condition holds (``thetastream.condition``), the stream with the lower number on
the left. Python predicates may read any number of streams.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from thetastream.condition import Bound, Dimension, Equality, SideSpec
from thetastream.types import Side


class Ends(NamedTuple):
    """``low <= left.ts - right.ts <= high`` in microseconds; None is open."""

    low: int | None = None
    high: int | None = None

    def turned(self) -> "Ends":
        """The same of ``right.ts - left.ts``.

        >>> Ends(-5, None).turned()
        Ends(low=None, high=5)
        """
        return Ends(None if self.high is None else -self.high, None if self.low is None else -self.low)


OPEN = Ends()


@dataclass(frozen=True)
class Edge:
    """What the condition says of two streams; key positions are those of their ``SideSpec``."""

    equalities: tuple[Equality, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    window: Ends = OPEN
    same: tuple[tuple[str, str], ...] = ()
    """Payload columns (left, right) whose values must be the same bytes: their hashes were equal."""

    def turned(self) -> "Edge":
        """The same edge with its sides exchanged."""
        return Edge(
            tuple(replace(e, left=e.right, right=e.left) for e in self.equalities),
            tuple(replace(d, point=d.point.other) for d in self.dimensions),
            self.window.turned(),
            tuple((right, left) for left, right in self.same),
        )

    def behind(self, n: int) -> "Edge":
        """The same edge where ``n`` other keys lie before those of the left side."""

        def moved(bound: Bound | None) -> Bound | None:
            return None if bound is None else replace(bound, key=bound.key + n)

        return replace(
            self,
            equalities=tuple(replace(e, left=e.left + n) for e in self.equalities),
            dimensions=tuple(
                replace(d, key=d.key + n)
                if d.point is Side.LEFT
                else replace(d, low=moved(d.low), high=moved(d.high))
                for d in self.dimensions
            ),
        )


NO_EDGE = Edge()


@dataclass(frozen=True)
class GraphPredicate:
    """A vectorised Python function over candidates of several streams.

    ``columns`` lists, per stream read, its number, its alias and (argument column, block column) pairs.
    """

    name: str
    function: Callable[..., Any]
    columns: tuple[tuple[int, str, tuple[tuple[str, str], ...]], ...]
    is_encoded: bool = False
    """Whether columns are handed over dictionary-encoded."""

    @property
    def streams(self) -> frozenset[int]:
        """The streams it reads."""
        return frozenset(stream for stream, _, _ in self.columns)


@dataclass(frozen=True)
class JoinGraph:
    """The whole condition, less what Catalyst evaluates behind the join."""

    sides: tuple[SideSpec, ...]
    edges: Mapping[tuple[int, int], Edge]
    """By (lower, higher) stream number; pairs without one are only tied through others."""
    predicates: tuple[GraphPredicate, ...] = ()

    def edge(self, left: int, right: int) -> Edge:
        """What two streams must satisfy, ``left`` on the left, whichever number is lower."""
        found = self.edges.get((min(left, right), max(left, right)), NO_EDGE)
        return found if left < right else found.turned()

    def lifetime_us(self, stream: int) -> int | None:
        """How long after its event time a tuple of ``stream`` may still find partners; None: for ever."""
        waits = [ends.high for other, ends in enumerate(self.reach(stream)) if other != stream]
        known = [high for high in waits if high is not None]
        return max(0, *known) if len(known) == len(waits) else None

    def reach(self, stream: int) -> tuple[Ends, ...]:
        """``low <= t_j - t <= high`` per stream j, for t of ``stream`` and t_j of one result.

        Windows add up along a path, a -> b -> c, and the shortest one bounds.
        """
        return tuple(
            Ends(None if (low := self._farthest(stream, j)) is None else -low, self._farthest(j, stream))
            for j in range(len(self.sides))
        )

    def _most(self, left: int, right: int) -> int | None:
        """The most that ``left.ts - right.ts`` can be, as the edge between them says."""
        if left < right:
            return self.edges.get((left, right), NO_EDGE).window.high
        return self.edges.get((right, left), NO_EDGE).window.turned().high

    def _farthest(self, later: int, earlier: int) -> int | None:
        """The most that ``later.ts - earlier.ts`` can be; None: any."""
        reached = {earlier: 0}
        for _ in self.sides:
            for middle, so_far in list(reached.items()):
                for other in range(len(self.sides)):
                    step = None if other == middle else self._most(other, middle)
                    if step is not None and so_far + step < reached.get(other, so_far + step + 1):
                        reached[other] = so_far + step
        return 0 if later == earlier else reached.get(later)
