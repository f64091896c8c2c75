"""Sends new tuples of a multi-way join only to the nodes that store them or look for their partners.

Under ATR, the event time of a tuple says which segments of the master are in reach, and so which nodes. Under
CTR, it says which nodes store the tuple, and its window in the first hop has a cover of nodes. So all routers
choose alike, without a message, and a Spark task that runs again sends the same tuples to the same nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Mask
from thetastream.core.sides import Role
from thetastream.engine.multiway.query import MultiwayQuery
from thetastream.engine.routing import ReadHashes, Router
from thetastream.models.base import Route
from thetastream.models.multiway import RoutedTuples


@dataclass(frozen=True)
class ArrivalRouter(Router):
    """The router of a model that chooses the nodes that receive a new tuple. Picklable."""

    query: MultiwayQuery = field(kw_only=True)

    def find_routes(
        self, stream: int, payload: pa.RecordBatch, hashes: ReadHashes, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of new tuples to the nodes of the newest generation.

        A shedder cannot drop probes only, so ``probing`` is None.
        """
        yield from self._route(self.query.model.choose_receivers, Role.BOTH, stream, payload)

    def find_probe_routes(
        self, stream: int, payload: pa.RecordBatch, hashes: ReadHashes, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of new tuples to the nodes of an older generation."""
        yield from self._route(self.query.model.choose_probed, Role.PROBE, stream, payload)

    def _route(
        self, choose: Callable[[RoutedTuples], Mask], role: Role, stream: int, payload: pa.RecordBatch
    ) -> Iterator[Route]:
        for node, is_mine in enumerate(choose(self.query.describe_routed(stream, payload))):
            rows = np.flatnonzero(is_mine)
            if len(rows):
                # Nodes that receive all rows share one block.
                yield Route(node, role, rows if len(rows) < payload.num_rows else None)
