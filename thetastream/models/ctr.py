"""Coordinated tuple routing (Gu, Yu and Wang, ICDE 2007), a baseline of PSP.

Every stream is cut into segments of event time. Segment k is stored on the nodes k mod N, (k + 1) mod N, ...,
as many as ``copies`` says. A probe needs the segments that its window touches and reads each of them at one
node. The nodes are chosen by greedy weighted set cover; more copies let fewer nodes cover the window. In each
hop, a partial result is sent only to the nodes of its cover. A new tuple is sent to the nodes that store it
and to the cover of its first hop.

No node knows the loads of the others. Therefore the weights of the nodes depend on the tie-breaking number of
the probe, which chooses the node with the smallest weight. With the same weights for all probes, all probes
of a window would go to the same nodes.

Segments k and k + N are stored on the same nodes, so a cover consists of classes k mod N. A node stores
``copies`` classes, each in its own part of the store. A probe reads a class at one node, so no result is
found twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar

import numpy as np

from thetastream.core.errors import QueryError
from thetastream.core.keys import Int64s, Mask, scramble
from thetastream.models.atr import SEGMENT, check_segment
from thetastream.models.base import is_positive
from thetastream.models.multiway import Multiway, NewTuples, Probes, RoutedTuples, Travel, number_stretches
from thetastream.models.ring import Ring


@dataclass(frozen=True)
class CTR(Multiway):
    """A baseline: N nodes hold every segment several times, and a probe visits a cover of its window.

    Parameters
    ----------
    nodes : int
        Units. A tuple goes to those that store it, and to those that its first hop reads.
    copies : int, optional
        How many nodes store each segment. If there are fewer nodes than this, all of them store it.
    segment : str or timedelta, optional
        The event time that one segment of a stream spans.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order of the hops.

    Raises
    ------
    QueryError
        BAD_UNITS if ``nodes`` is not a positive integer, BAD_COPIES, BAD_SEGMENT, BAD_HOPS.

    Examples
    --------
    >>> CTR(nodes=4, copies=3).n_parts
    3
    """

    nodes: int = 1
    copies: int = 2
    segment: str | timedelta = SEGMENT
    order: Mapping[str, Sequence[str]] | None = None
    name: ClassVar[str] = "ctr"
    sizes: ClassVar[tuple[str, ...]] = ("nodes",)
    runs_as_unit: ClassVar[bool] = False
    travel: ClassVar[Travel] = Travel.COVER
    span_field: ClassVar[str] = "segment"
    chooses_receivers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check()
        if not is_positive(self.copies):
            raise QueryError("BAD_COPIES", f"copies must be a positive integer, not {self.copies!r}")
        check_segment(self.segment)

    @property
    def on_batch(self) -> Ring:
        return Ring(self.nodes)

    @property
    def n_parts(self) -> int:
        return min(self.copies, self.nodes)

    def assign_parts(self, node: int, arrivals: NewTuples) -> Int64s:
        part = self._find_parts(arrivals.times)[node]
        return np.where(part < self.n_parts, part, np.int64(-1))

    def choose_receivers(self, arrivals: RoutedTuples) -> Mask:
        are_stored: Mask = self._find_parts(arrivals.times) < self.n_parts
        return are_stored | self.choose_probed(arrivals)

    def choose_probed(self, arrivals: RoutedTuples) -> Mask:
        covers, which = self._choose_covers(arrivals.find_probes())
        return np.array([(covers == node).any(axis=1)[which] for node in range(self.nodes)])

    def is_counted(self, node: int, arrivals: RoutedTuples) -> Mask:
        is_first: Mask = self._find_parts(arrivals.times)[node] == 0
        return is_first

    def choose_probes(self, node: int, probes: Probes) -> Sequence[Int64s | None]:
        covers, which = self._choose_covers(probes)
        return [
            np.flatnonzero((covers[:, (node - part) % self.nodes] == node)[which])
            for part in range(self.n_parts)
        ]

    def _find_parts(self, times: Int64s) -> Int64s:
        """Find how far each node lies behind the first node that stores a tuple, as an array (nodes,
        tuples)."""
        first = number_stretches(times, self.span_us) % self.nodes
        parts: Int64s = (np.arange(self.nodes)[:, None] - first) % self.nodes
        return parts

    def _choose_covers(self, probes: Probes) -> tuple[Int64s, Int64s]:
        """Choose the node at which each probe reads each class of segments.

        Returns
        -------
        covers : array of shape (patterns, nodes)
            For each pattern of probes and each class, the node; -1 for classes that are not needed.
        which : array
            The pattern of each probe.
        """
        # The classes that a window touches and the preferred node are the pattern; there are few of them.
        n = self.nodes
        first, last = (number_stretches(times, self.span_us) for times in probes[:2])
        touched = np.where(last >= first + n, np.int64(n), np.clip(last - first + 1, 0, n))
        pattern = (first % n * (n + 1) + touched) * n + scramble(probes.tie_breakers) % n
        patterns, which = np.unique(pattern, return_inverse=True)
        covers = np.empty((len(patterns), n), dtype=np.int64)
        for row, code in enumerate(patterns.tolist()):
            rest, turn = divmod(code, n)
            covers[row] = cover(n, self.n_parts, *divmod(rest, n + 1), turn)
        return covers, which

    def describe(self) -> str:
        return (
            f"coordinated tuple routing: {self.nodes} node(s), segments of {self.segment} of every stream on "
            f"{self.n_parts} of them; a probe visits a cover"
        )


@lru_cache(maxsize=1 << 16)
def cover(nodes: int, copies: int, first: int, n: int, turn: int) -> tuple[int, ...]:
    """Choose the node at which a probe reads each class of segments, by greedy set cover; -1 for unneeded
    classes.

    The probe needs ``n`` of the ``nodes`` classes, from ``first`` on. The weight of node ``turn`` is 1, and
    the weights of the nodes after it grow to almost 2. Each step adds the node with the smallest weight per
    new class.

    >>> cover(4, 2, 1, 2, 0), cover(4, 2, 0, 4, 0), cover(4, 2, 0, 4, 1)
    ((-1, 2, 2, -1), (0, 2, 2, 0), (1, 1, 3, 3))
    """
    wanted = {(first + k) % nodes for k in range(n)}
    asked = [-1] * nodes
    behind = [(turn + k) % nodes for k in range(nodes)]
    held = [{(node - part) % nodes for part in range(copies)} for node in range(nodes)]
    while wanted:
        prices = [
            ((1 + place / nodes) / len(gained), place, node)
            for place, node in enumerate(behind)
            if (gained := wanted & held[node])
        ]
        node = min(prices)[2]
        for each in wanted & held[node]:
            asked[each] = node
        wanted -= held[node]
    return tuple(asked)
