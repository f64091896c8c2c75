"""Coordinated tuple routing (Gu, Yu and Wang, ICDE 2007), a baseline of PSP.

Every stream is cut into segments of event time, and segment k lies on the ``copies`` nodes that follow each
other from node k mod N. A probe asks for the segments that its window touches, each at one node; copies let
few nodes answer: they are chosen by greedy weighted set cover. Partial results travel hop by hop, each to the
nodes of its next cover alone.

No node knows how busy another is, so weights take turns: a probe's own number says which node weighs least.
With one weight for all, every probe of a window would go to the same nodes.

Segments that are N apart lie on the same nodes, so a cover is one of the classes k mod N, of which a node
holds ``copies``, a part of its store each. A class is asked of one node, so nothing is found twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import ClassVar

import numpy as np

from thetastream.errors import QueryError
from thetastream.keys import Int64s, scramble
from thetastream.models.atr import SEGMENT, check_segment
from thetastream.models.base import positive_pair
from thetastream.models.multiway import Asking, Multiway, NewTuples, Travel, stretches


@dataclass(frozen=True)
class CTR(Multiway):
    """A baseline: N nodes that hold every segment several times, probes visit a cover of them.

    Parameters
    ----------
    nodes : int
        Units that get every tuple and store their share.
    copies : int, optional
        Nodes that store each segment; all, if there are not so many.
    segment : str or timedelta, optional
        Event time that one segment of a stream spans.
    order : mapping of alias to sequence of aliases, optional
        For tuples of a stream, the other streams in the order in which their partners are looked for.

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
    is_binary: ClassVar[bool] = False
    travel: ClassVar[Travel] = Travel.COVER
    span_field: ClassVar[str] = "segment"

    def __post_init__(self) -> None:
        self._check()
        if isinstance(self.copies, tuple | list) or positive_pair(self.copies) is None:
            raise QueryError("BAD_COPIES", f"copies must be a positive integer, not {self.copies!r}")
        check_segment(self.segment)

    @property
    def n_parts(self) -> int:
        return min(self.copies, self.nodes)

    def takes(self, node: int, arrivals: NewTuples) -> Int64s:
        part = (node - stretches(arrivals.times, self.span_us) % self.nodes) % self.nodes
        return np.where(part < self.n_parts, part, np.int64(-1))

    def asked(self, node: int, asking: Asking) -> Sequence[Int64s | None]:
        n = self.nodes
        # 1. The classes that each window touches, and whose turn it is: a few patterns.
        first, last = (stretches(times, self.span_us) for times in asking[:2])
        touched = np.where(last >= first + n, np.int64(n), np.clip(last - first + 1, 0, n))
        pattern = (first % n * (n + 1) + touched) * n + scramble(asking.turns) % n
        patterns, which = np.unique(pattern, return_inverse=True)
        # 2. What each pattern asks of this node, part by part.
        asks = np.zeros((len(patterns), self.n_parts), dtype=np.bool_)
        for row, code in enumerate(patterns.tolist()):
            rest, turn = divmod(code, n)
            asks[row] = [
                cover(n, self.n_parts, *divmod(rest, n + 1), turn)[(node - part) % n] == node
                for part in range(self.n_parts)
            ]
        return [np.flatnonzero(asks[which, part]) for part in range(self.n_parts)]

    def describe(self) -> str:
        return (
            f"coordinated tuple routing: {self.nodes} node(s), segments of {self.segment} of every stream on "
            f"{self.n_parts} of them; a probe visits a cover"
        )


@lru_cache(maxsize=1 << 16)
def cover(nodes: int, copies: int, first: int, n: int, turn: int) -> tuple[int, ...]:
    """The node that each class of segments is asked of, -1 for those that are not; greedy.

    Of ``nodes`` classes the ``n`` from ``first`` on are wanted. A node weighs from 1 to 2, more the further
    it is behind ``turn``; the one that costs least weight for each class it adds comes next.

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
