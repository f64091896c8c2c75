"""A join run epoch by epoch in this process: the same code as on Spark, less the exchange."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from thetastream.blocks import HASH_COLUMN, route
from thetastream.joiner.clock import BATCH, BEFORE, Clock
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.placing import placing
from thetastream.joiner.segment import MemoryStore
from thetastream.joiner.unit import Counters, Matches, Unit, UnitSpec, UnitState
from thetastream.models.base import Model, Places
from thetastream.types import Side


class LocalJoin:
    """State of all units, one epoch at a time.

    Parameters
    ----------
    spec : UnitSpec
        Condition, indexes, archive period.
    model : Model
        The router.

    Examples
    --------
    Two tuples with |x - y| <= 1, stored and probed in one epoch:

    >>> import pyarrow as pa
    >>> from thetastream.condition import Bound, Condition, Dimension, Domain, IndexSpec, Key, SideSpec
    >>> from thetastream.models import Biclique
    >>> side = lambda alias: SideSpec(alias, ("x",), keys=(Key("x", Domain.INT),))
    >>> band = Dimension(Side.LEFT, 0, Bound(0, -1), Bound(0, +1))
    >>> condition = Condition((side("a"), side("b")), dimensions=(band,))
    >>> spec = UnitSpec(condition, (IndexSpec("sorted", dimensions=(0,)),) * 2, None)
    >>> join = LocalJoin(spec, Biclique(1))
    >>> batch = lambda *values: pa.RecordBatch.from_pydict({"x": list(values)})
    >>> [(m.left["x"].to_pylist(), m.right["x"].to_pylist()) for m in join.epoch(batch(1, 5), batch(2))]
    [([1], [2])]
    """

    def __init__(self, spec: UnitSpec, model: Model) -> None:
        self._spec = spec
        self._model = model
        found = placing(model, spec.condition)
        self._places = None if found is None else found.places
        self._stores = [MemoryStore() for _ in range(model.n_units)]
        self._states = [UnitState() for _ in range(model.n_units)]
        self._clock = BEFORE
        self.counters: list[Counters] = [Counters() for _ in range(model.n_units)]
        """Per unit, of the last epoch."""

    def epoch(
        self, left: pa.RecordBatch | None, right: pa.RecordBatch | None, watermark_us: int | None = None
    ) -> Iterator[Matches]:
        """Run one epoch over all units.

        Parameters
        ----------
        left, right : pyarrow.RecordBatch or None
            The epoch's tuples, with the columns the condition's ``SideSpec`` names.
        watermark_us : int, optional
            Watermark of the epoch in microseconds.
        """
        self._clock = self._clock.then(watermark_us)
        for number, inbox in enumerate(self.deliver(left, right)):
            yield from self.run(number, inbox, self._clock)

    def deliver(self, left: pa.RecordBatch | None, right: pa.RecordBatch | None) -> list[Inbox]:
        """What the exchange brings each unit of an epoch's tuples."""
        return deliver(self._model, (left, right), self._places)

    def run(self, number: int, inbox: Inbox, clock: Clock = BATCH) -> Iterator[Matches]:
        """One unit's part of an epoch."""
        unit = Unit(self._spec, self._model, number, self._states[number], self._stores[number])
        yield from unit.epoch(inbox, clock)
        self._states[number] = unit.state
        self.counters[number] = unit.counters


def deliver(
    model: Model,
    batches: Sequence[pa.RecordBatch | None],
    places: Callable[[Side, pa.RecordBatch], Places] | None = None,
) -> list[Inbox]:
    """What the exchange brings each unit of an epoch's tuples of left and right.

    A column ``h`` of a batch, int64 and not negative, is the hash of its tuples; without one, and if the
    model needs it, every tuple is hashed here, slowly.
    """
    inboxes = [Inbox() for _ in range(model.n_units)]
    for side, batch in zip(Side, batches, strict=True):
        if batch is None or not batch.num_rows:
            continue
        if model.needs_hash and HASH_COLUMN not in batch.schema.names:
            hashes = np.array([hash(repr(row)) for row in batch.to_pylist()], dtype=np.int64)
            batch = batch.append_column(HASH_COLUMN, pa.array(hashes))
        for number, role, block in route(model, side, batch, places):
            inboxes[number].add(side, role, 0, block, block.nbytes)
    return inboxes
