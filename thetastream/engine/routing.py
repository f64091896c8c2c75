"""The router: it splits the tuples of a stream into blocks and chooses the units that each block goes to."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.columns import HASH
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import Model
from thetastream.models.routes import Hashes, Places, Route

Mask = npt.NDArray[np.bool_]
FindPlaces = Callable[[Side, pa.RecordBatch], Places]


@dataclass(frozen=True)
class Router:
    """A model, with the function that finds the places of tuples if the model routes by content.
    Picklable."""

    model: Model
    places: FindPlaces | None = None
    probes_first_copies: bool = False
    """Whether units of older generations hold only the first copy of each tuple."""

    def route(
        self, stream: int, batch: pa.RecordBatch, probing: Mask | None = None
    ) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        """Yield (unit, role, block) for every destination of the rows of ``batch``. Destinations that get the
        same rows share one block object.

        Parameters
        ----------
        stream : int
            Number of the stream that the rows belong to.
        batch : pyarrow.RecordBatch
            The rows. They have the column ``h``, the hash of each tuple, if the model needs it.
        probing : array of bool, optional
            Which rows look for partners; all of them if it is left out. The model must send what is stored
            and what probes apart.
        """
        payload, tuples = split_hash(batch)
        yield from take_blocks(payload, self.find_routes(stream, payload, tuples, probing))

    def find_routes(
        self, stream: int, payload: pa.RecordBatch, tuples: Int64s | None, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of the rows of ``payload``, whose hashes are ``tuples`` if models need them.

        ``probing`` says which rows look for partners, as in ``route``.
        """
        yield from self._find(self.model.route, stream, payload, tuples, probing)

    def find_probe_routes(
        self, stream: int, payload: pa.RecordBatch, tuples: Int64s | None, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of rows that look for partners and are stored elsewhere."""
        route = self.model.probe_first_copies if self.probes_first_copies else self.model.route_probes
        yield from self._find(route, stream, payload, tuples, probing)

    def find_store_routes(self, stream: int, payload: pa.RecordBatch, numbers: Int64s) -> Iterator[Route]:
        """Yield the routes of rows that move to units of this model, and look for no partners.

        ``numbers`` spread the rows, as their hashes do when they arrive.
        """
        yield from self._find(self.model.route_moved, stream, payload, numbers, None)

    def find_first_copies(self, unit: int, stream: int, payload: pa.RecordBatch) -> Mask:
        """Find the rows of which this unit stores the first copy."""
        places = None if self.places is None else self.places(Side(stream), payload)
        return self.model.find_first_copies(unit, Side(stream), payload.num_rows, places)

    def _find(
        self,
        route: Callable[[Side, int, Hashes], Iterator[Route]],
        stream: int,
        payload: pa.RecordBatch,
        tuples: Int64s | None,
        probing: Mask | None,
    ) -> Iterator[Route]:
        # Models of more than two streams send every tuple to every node and ignore the side.
        side = Side(stream) if stream in (0, 1) else Side.LEFT
        found = None if self.places is None else self.places(side, payload)
        routes = route(side, payload.num_rows, Hashes(tuples, found))
        yield from routes if probing is None else _limit_probes(routes, probing)


def _limit_probes(routes: Iterable[Route], probing: Mask) -> Iterator[Route]:
    """Yield the routes without the rows that do not look for partners. Routes that shared an array of rows
    still share one."""
    chosen: tuple[object, Int64s] = (probing, np.flatnonzero(probing))
    for route in routes:
        if route.role is not Role.PROBE:
            yield route
            continue
        if route.rows is None:
            chosen = (None, np.flatnonzero(probing)) if chosen[0] is not None else chosen
        elif chosen[0] is not route.rows:
            chosen = route.rows, route.rows[probing[route.rows]]
        if len(chosen[1]):
            yield route._replace(rows=chosen[1])


def split_hash(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s | None]:
    """Split off the column with the hash of each tuple; None if the batch does not have it."""
    if HASH not in batch.schema.names:
        return batch, None
    return batch.drop_columns([HASH]), batch.column(HASH).to_numpy(zero_copy_only=False)


def take_blocks(
    payload: pa.RecordBatch, routes: Iterable[Route]
) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
    """Yield (unit, role, block) for each route. Consecutive routes with the same rows share one block."""
    taken: tuple[object, pa.RecordBatch] = (None, payload)
    for unit, role, rows in routes:
        if rows is None:
            yield unit, role, payload
            continue
        if taken[0] is not rows:
            taken = rows, payload.take(rows)
        yield unit, role, taken[1]
