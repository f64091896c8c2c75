"""Partial results: combinations of tuples of some streams, which look for partners in one more stream.

A partial result carries the place of its oldest tuple in the global order, for aligned tuple routing (ATR)
and for rings in one epoch. Their nodes join only what they store, so a generation of nodes finds exactly the
combinations of tuples that it has received. When a newer generation replaces it, let b be the place at which
the newer one begins:

    the newer generation finds the combinations whose oldest tuple is at b or later;
    the older generation finds those whose oldest tuple is before b.

So the older generation goes on storing new tuples, until the last tuple from before b has left its window.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import gather
from thetastream.core.columns import BORN, OLDEST
from thetastream.core.keys import LOWEST
from thetastream.engine.inbox import Message
from thetastream.engine.multiway.graph import HopKey, HopOrder
from thetastream.engine.multiway.query import Horizon
from thetastream.engine.store.chained_index import ChainedIndex

PartialResultsHeader = tuple[HopOrder, int, Horizon]
"""The path, the number of members and the horizon of partial results."""


@dataclass(frozen=True)
class PartialResults:
    """Partial results that began with tuples of one stream in one epoch."""

    path: HopOrder
    """All streams in the order in which the partial results visit them. The origin is first."""
    n_members: int
    """The number of streams that are joined so far."""
    horizon: Horizon
    """The horizon of the epoch in which their origins arrived."""
    block: pa.RecordBatch
    to: int | None = None
    """The node that receives the partial results; None means all nodes."""

    @property
    def origin(self) -> int:
        """The stream with whose tuples the partial results began."""
        return self.path[0]

    def make_hop_key(self, n_members: int) -> HopKey:
        """Return the key of the hop that partial results over ``n_members`` streams make."""
        return sum(1 << stream for stream in self.path[:n_members]), self.path[n_members]

    def to_message(self) -> Message:
        """Convert the partial results to a message."""
        return Message(json.dumps([self.path, self.n_members, self.horizon]), self.block, self.to)

    @classmethod
    def from_message(cls, message: Message) -> "PartialResults":
        """Convert a message back to partial results.

        >>> block = pa.RecordBatch.from_pydict({"c0": [1]})
        >>> partial = PartialResults((2, 0, 1), 2, None, block)
        >>> PartialResults.from_message(partial.to_message()) == partial
        True
        """
        path, n_members, horizon = json.loads(message.header)
        assert message.block is not None
        horizon = tuple(horizon) if isinstance(horizon, list) else horizon
        return cls(tuple(path), n_members, horizon, message.block, message.to)


def merge_partial_results(partials: list[PartialResults]) -> list[PartialResults]:
    """Merge partial results with equal headers, because every message causes a search of every segment."""
    found: dict[PartialResultsHeader, list[pa.RecordBatch]] = defaultdict(list)
    for partial in partials:
        found[partial.path, partial.n_members, partial.horizon].append(partial.block)
    return [PartialResults(*header, block) for header, blocks in found.items() for block in gather(blocks)]


class Overlap:
    """The older of two generations, at one node.

    Parameters
    ----------
    begins : int
        The place in the global order at which the newer generation begins.
    """

    def __init__(self, begins: int) -> None:
        self._begins = begins

    def begin(self, partial: PartialResults) -> PartialResults:
        """Add the place of the oldest tuple to tuples that begin to look for partners."""
        block = partial.block
        return replace(partial, block=block.append_column(OLDEST, block.column(BORN)))

    def join(
        self, members: pa.RecordBatch, partners: pa.RecordBatch, is_complete: bool
    ) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return partial results with the place of their oldest tuple, and the partners that they found.

        Complete results are dropped if the newer generation finds them.
        """
        oldest = np.minimum(members.column(OLDEST).to_numpy(), partners.column(BORN).to_numpy())
        members = members.drop_columns([OLDEST]).append_column(OLDEST, pa.array(oldest))
        if not is_complete:
            return members, partners
        is_mine = pa.array(oldest < self._begins)
        return members.filter(is_mine), partners.filter(is_mine)


def find_end(indexes: list[ChainedIndex]) -> int:
    """Find the watermark at which the tuples that are stored now have left their windows."""
    ends = [end for index in indexes if (end := index.find_end()) is not None]
    return max(ends, default=LOWEST)
