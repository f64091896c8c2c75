"""The router: it splits the tuples of a stream into blocks and chooses the units that each block goes to."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pyarrow as pa

from thetastream.core.columns import HASH, SIGN
from thetastream.core.keys import Int64s, Mask
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Places, Route, split

FindPlaces = Callable[[Side, pa.RecordBatch], Places]
ReadHashes = Callable[[], Int64s]
"""Returns the hash of each row of a block. A router calls it only if its routes depend on hashes."""


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
            The rows. If they lack the column ``h``, the hash of each tuple, a router computes what it reads.
        probing : array of bool, optional
            Which rows look for partners; all of them if it is left out. The model must send what is stored
            and what probes apart.
        """
        payload, hashes = split_hash(batch)
        yield from take_blocks(payload, self.find_routes(stream, payload, hashes, probing))

    def find_routes(
        self, stream: int, payload: pa.RecordBatch, hashes: ReadHashes, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of the rows of ``payload``, whose hashes the function ``hashes`` returns.

        ``probing`` says which rows look for partners, as in ``route``.
        """
        yield from self._find(self.model.route, stream, payload, hashes, probing)

    def find_probe_routes(
        self, stream: int, payload: pa.RecordBatch, hashes: ReadHashes, probing: Mask | None = None
    ) -> Iterator[Route]:
        """Yield the routes of rows that look for partners and are stored elsewhere."""
        route = self.model.probe_first_copies if self.probes_first_copies else self.model.route_probes
        yield from self._find(route, stream, payload, hashes, probing)

    def find_store_routes(self, stream: int, payload: pa.RecordBatch, numbers: Int64s) -> Iterator[Route]:
        """Yield the routes of rows that move to units of this model, and look for no partners.

        ``numbers`` spread the rows, as their hashes do when they arrive.
        """
        route = partial(route_moved, self.model)
        yield from self._find(route, stream, payload, lambda: numbers, None)

    def find_first_copies(self, unit: int, stream: int, payload: pa.RecordBatch) -> Mask:
        """Find the rows of which this unit stores the first copy."""
        places = None if self.places is None else self.places(Side(stream), payload)
        return self.model.first_copies(unit, Side(stream), payload.num_rows, places)

    def _find(
        self,
        route: Callable[[Side, int, Hashes], Iterator[Route]],
        stream: int,
        payload: pa.RecordBatch,
        hashes: ReadHashes,
        probing: Mask | None,
    ) -> Iterator[Route]:
        # Models of more than two streams send every tuple to every node and ignore the side.
        side = Side(stream) if stream in (0, 1) else Side.LEFT
        places = None if self.places is None else partial(self.places, side, payload)
        routes = route(side, payload.num_rows, Hashes(hashes, places))
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


def route_moved(model: Model, side: Side, n_rows: int, hashes: Hashes) -> Iterator[Route]:
    """Yield the routes of rows that were stored by another model, and move to units of ``model``."""
    if model.sees_all:
        # All tuples probe all units, so any unit may store a row. The row has no number any more.
        for unit, rows in split(hashes.tuples % model.n_units, model.n_units):
            yield Route(unit, Role.STORE, rows)
        return
    yield from (route for route in model.route(side, n_rows, hashes) if route.role is not Role.PROBE)


def reads_hashes(model: Model) -> bool:
    """Whether the routes of a model depend on the hashes of tuples. If so, Spark computes the hashes.

    >>> from thetastream.models import Biclique, Split
    >>> reads_hashes(Biclique(2)), reads_hashes(Biclique(2, subgroups=2)), reads_hashes(Split(2))
    (True, False, False)
    """
    return _try_routes(model)[1]


def sends_probes_apart(model: Model) -> bool:
    """Whether a tuple is sent once to be stored and once to look for partners, never for both at once.

    Only then may a shedder drop probes and keep the tuples.

    >>> from thetastream.models import Biclique, Matrix
    >>> sends_probes_apart(Biclique(2)), sends_probes_apart(Matrix(2, 2))
    (True, False)
    """
    return all(len(route.role.parts) == 1 for route in _try_routes(model)[0])


def _try_routes(model: Model) -> tuple[list[Route], bool]:
    """Return the routes of two tuples of each side, and whether the model has read their hashes."""
    numbers = np.arange(2, dtype=np.int64)
    hashes = Hashes(lambda: numbers, lambda: Places(numbers, numbers, numbers))
    routes = [route for side in Side for route in model.route(side, len(numbers), hashes)]
    return routes, "tuples" in vars(hashes)


def split_hash(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, ReadHashes]:
    """Split off the column with the hash of each tuple. Without it, the hashes are computed when they are
    first read."""
    if HASH not in batch.schema.names:
        return batch, cache(lambda: hash_rows(batch))
    return batch.drop_columns([HASH]), lambda: batch.column(HASH).to_numpy(zero_copy_only=False)


def hash_rows(batch: pa.RecordBatch) -> Int64s:
    """Compute the hash of each tuple where Spark has not computed it.

    A running query may get another model than the planned one, which needs hashes when the planned one did
    not. It need not be Spark's hash: any hash spreads tuples, in the same way whenever a Spark task is run
    again.
    """
    import pandas as pd

    names, columns = batch.schema.names, batch.columns
    # pandas cannot hash nested values. A delete has the hash of its insert, so both go to the same units.
    flat = [
        name
        for name, one in zip(names, columns, strict=True)
        if not pa.types.is_nested(one.type) and name != SIGN
    ]
    if not flat:
        return np.zeros(batch.num_rows, dtype=np.int64)
    hashes = pd.util.hash_pandas_object(batch.select(flat).to_pandas(), index=False).to_numpy()
    found: Int64s = hashes.view(np.int64)
    return found


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
