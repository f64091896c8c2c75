"""The router: it splits the tuples of a stream into blocks and chooses the units that each block goes to."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.columns import HASH
from thetastream.core.keys import Int64s
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Places, Route

FindPlaces = Callable[[Side, pa.RecordBatch], Places]


@dataclass(frozen=True)
class Router:
    """A model, with the function that finds the places of tuples if the model routes by content.
    Picklable."""

    model: Model
    places: FindPlaces | None = None

    def route(self, stream: int, batch: pa.RecordBatch) -> Iterator[tuple[int, Role, pa.RecordBatch]]:
        """Yield (unit, role, block) for every destination of the rows of ``batch``. Equal blocks are one
        object.

        Parameters
        ----------
        stream : int
            Number of the stream that the rows belong to.
        batch : pyarrow.RecordBatch
            The rows. They have the column ``h``, the hash of each tuple, if the model needs it.
        """
        payload, tuples = split_hash(batch)
        yield from take_blocks(payload, self.find_routes(stream, payload, tuples))

    def find_routes(self, stream: int, payload: pa.RecordBatch, tuples: Int64s | None) -> Iterator[Route]:
        """Yield the routes of the rows of ``payload``, whose hashes are ``tuples`` if models need them."""
        # Models of more than two streams send every tuple to every node and ignore the side.
        side = Side(stream) if stream in (0, 1) else Side.LEFT
        found = None if self.places is None else self.places(side, payload)
        return self.model.route(side, payload.num_rows, Hashes(tuples, found))


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
