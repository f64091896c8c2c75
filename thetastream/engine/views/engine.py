"""The engine of online aggregation: units of a two-stream join that fold their matches into views.

A view leaves its unit in the epoch that made it, or it waits for later epochs
(``thetastream.engine.views.view``). The unit keeps waiting views in its store. An epoch that brings no tuples
releases them. Spark runs such an epoch as soon as the watermark moves.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox, Message
from thetastream.engine.protocol import OpenStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit
from thetastream.engine.views.view import Fold, fold_matches, is_followed


@dataclass
class FoldedState:
    """State of a unit: the state of the join and the waiting views."""

    unit: UnitState = field(default_factory=UnitState)
    since_ms: int = 0
    """Watermark of the epoch that made the oldest waiting view, in milliseconds."""
    views: list[tuple[str, int]] = field(default_factory=list)
    """The waiting views: the name of each view's block in the store and its number of rows."""


class FoldedUnit:
    """A unit of a join that returns views: one row per group instead of one row per match."""

    messages: Sequence[Message] = ()
    is_waiting = False

    def __init__(self, spec: "FoldedSpec", slot: int, state: FoldedState, open_store: OpenStore) -> None:
        join = spec.join
        self._spec = spec
        self._store = open_store(join.unit.plans)
        self._unit = Unit(join.unit, join.model, slot, state.unit, self._store)
        self._since_ms = state.since_ms
        self._views = state.views
        self.counters = self._unit.counters

    @property
    def state(self) -> FoldedState:
        """The state after all epochs run so far."""
        return FoldedState(self._unit.state, self._since_ms, self._views)

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the view, which includes the views that waited."""
        # 1. Fold this epoch's matches and the views that waited into one view.
        fold, now_ms = self._spec.fold, (clock.watermark_us or 0) // 1000
        view = fold_matches(fold, self._unit.matches(inbox, clock))
        if not self._views:
            self._since_ms = now_ms
        for name, n_rows in self._views:
            view.merge(self._store.get_block(name, n_rows))
            self._store.drop_block(name)
        self._views = []
        rows = view.rows()
        # 2. Release the view, unless it may wait.
        if rows and self._may_wait(inbox, now_ms):
            self._keep(rows)
            return
        for batch in rows:
            yield batch.columns

    def _may_wait(self, inbox: Inbox, now_ms: int) -> bool:
        """Whether the view is not due and another epoch is certain to follow."""
        lazy = self._spec.fold.lazy
        if lazy is None or now_ms - self._since_ms >= lazy.every_ms:
            return False
        return is_followed(lazy, self._spec.join.unit.condition, inbox, now_ms)

    def _keep(self, rows: Sequence[pa.RecordBatch]) -> None:
        for batch in rows:
            name = uuid.uuid4().hex
            self._store.put_block(name, batch)
            self._views.append((name, batch.num_rows))


@dataclass(frozen=True)
class FoldedSpec(ExtendedSpec):
    """Spec of a two-stream join whose units fold their matches."""

    fold: Fold

    state_type: ClassVar[type[FoldedState]] = FoldedState

    @property
    def scaling_obstacle(self) -> str | None:
        """Why the units cannot change while the query runs; None if they can."""
        if self.fold.lazy is not None:
            return "every= keeps views in the units, and a unit that leaves would take them along"
        return super().scaling_obstacle

    def open(self, slot: int, state: FoldedState, open_store: OpenStore) -> FoldedUnit:
        """Open the unit with number ``slot``."""
        return FoldedUnit(self, slot, state, open_store)
