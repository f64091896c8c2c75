"""The router: it splits the tuples of a stream into blocks and chooses the units that each block goes to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from thetastream.core.columns import HASH
from thetastream.core.sides import Role, Side
from thetastream.models.base import Hashes, Model, Places

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
        # Models of more than two streams send every tuple to every node and ignore the side.
        side = Side(stream) if stream in (0, 1) else Side.LEFT
        tuples = None
        if HASH in batch.schema.names:
            tuples = batch.column(HASH).to_numpy(zero_copy_only=False)
            batch = batch.drop_columns([HASH])
        found = None if self.places is None else self.places(side, batch)
        taken: tuple[object, pa.RecordBatch] = (None, batch)
        for unit, role, rows in self.model.route(side, batch.num_rows, Hashes(tuples, found)):
            if rows is None:
                yield unit, role, batch
                continue
            if taken[0] is not rows:
                taken = rows, batch.take(rows)
            yield unit, role, taken[1]
