"""Partial results: combinations of tuples of some streams, which look for partners in one more stream."""

import json
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.blocks import gather
from thetastream.engine.inbox import Message
from thetastream.engine.multiway.horizons import Horizon, read_horizon
from thetastream.engine.multiway.stream_sets import HopKey, HopOrder

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

    def seal(self) -> Message:
        """Convert the partial results to a message."""
        return Message(json.dumps([self.path, self.n_members, self.horizon]), self.block, self.to)

    @classmethod
    def unseal(cls, message: Message) -> "PartialResults":
        """Convert a message back to partial results.

        >>> block = pa.RecordBatch.from_pydict({"c0": [1]})
        >>> partial = PartialResults((2, 0, 1), 2, None, block)
        >>> PartialResults.unseal(partial.seal()) == partial
        True
        """
        path, n_members, horizon = json.loads(message.header)
        assert message.block is not None
        return cls(tuple(path), n_members, read_horizon(horizon), message.block, message.to)


def merge_partial_results(partials: list[PartialResults]) -> list[PartialResults]:
    """Merge partial results with equal headers, because every message causes a search of every segment."""
    found: dict[PartialResultsHeader, list[pa.RecordBatch]] = defaultdict(list)
    for partial in partials:
        found[partial.path, partial.n_members, partial.horizon].append(partial.block)
    return [PartialResults(*header, block) for header, blocks in found.items() for block in gather(blocks)]
