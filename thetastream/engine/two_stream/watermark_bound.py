"""The engine of joins whose results say how far the watermark rises after the epoch.

    bound = min over both inputs of  max(t) - delay    for the tuples that a unit receives in the epoch

Spark's watermark is the minimum over all streams of the latest event time minus the delay. So after the epoch
it is at least the bound, if both inputs are streams. If an input is the result of another join, the column
with the bound of that join takes the place of t, and there is no delay. The rows of such a result are found
in the epoch in which they are received, so the bound holds for all streams behind it.

Only tuples of this epoch count. A stored tuple says nothing after a restart, because Spark then forgets the
latest event time of each stream.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from thetastream.core.condition import Domain
from thetastream.core.keys import HIGHEST, encode
from thetastream.core.sides import Role, Side
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox
from thetastream.engine.protocol import OpenStore
from thetastream.engine.store.segment import SegmentStore
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit
from thetastream.models.base import Model


@dataclass(frozen=True)
class BoundSource:
    """The column of an input from which its bound follows, and the watermark delay in milliseconds."""

    column: str
    """The block column of event times, or of bounds, in microseconds."""
    delay_ms: int = 0


BoundSources = tuple[BoundSource, BoundSource]


def find_watermark_bound(inbox: Inbox, sources: BoundSources) -> int | None:
    """Return a lower bound of the watermark after the epoch, in milliseconds; None if nothing bounds it."""
    bounds = []
    for side, source in zip(Side, sources, strict=True):
        latest_us = max(_find_latest(inbox, side, source.column), default=None)
        if latest_us is None:
            return None
        bounds.append(latest_us // 1000 - source.delay_ms)  # Spark's watermark is in milliseconds.
    return min(bounds)


def _find_latest(inbox: Inbox, side: Side, column: str) -> Iterator[int]:
    """Yield the largest value of a column in the tuples of each role."""
    for role in Role:
        batch = inbox.batch(side, role)
        if batch is not None:
            values = encode(batch.column(column), Domain.INT)
            known = values[values < HIGHEST]  # NULL is the highest key
            if len(known):
                yield int(known.max())


class BoundingUnit(Unit):
    """A unit whose results have one more column: the bound of the watermark, in microseconds."""

    def __init__(
        self,
        spec: UnitSpec,
        model: Model,
        slot: int,
        state: UnitState,
        store: SegmentStore,
        sources: BoundSources,
    ) -> None:
        super().__init__(spec, model, slot, state, store)
        self._sources = sources

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of its matches, and the bound."""
        bound_ms = find_watermark_bound(inbox, self._sources)
        bound = pa.scalar(None if bound_ms is None else bound_ms * 1000, pa.int64())
        for matches in self.matches(inbox, clock):
            yield [*matches.columns, pa.repeat(bound, matches.left.num_rows)]


@dataclass(frozen=True)
class BoundingSpec(ExtendedSpec):
    """Spec of a two-stream join whose results say how far the watermark rises."""

    sources: BoundSources

    state_type: ClassVar[type[UnitState]] = UnitState

    def open(self, slot: int, state: UnitState, open_store: OpenStore) -> BoundingUnit:
        """Open the unit with number ``slot``."""
        unit, store = self.join.unit, open_store(self.join.unit.plans)
        return BoundingUnit(unit, self.join.model, slot, state, store, self.sources)
