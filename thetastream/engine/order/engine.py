"""The engine of ordered results: units of a two-stream join, of which unit 0 writes punctuations.

Every unit receives all tuples, so each unit knows how many tuples have arrived. Unit 0 of the newest
generation writes the punctuations of the epoch. A punctuation is a row in which all columns are NULL except
the number of the arrival that it follows, which stands in the column of the stream of this arrival. So a
punctuation carries its stream (SplitJoin, figure 9).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.arrival import Numbers
from thetastream.engine.clock import Clock
from thetastream.engine.inbox import Inbox
from thetastream.engine.order.spec import Order
from thetastream.engine.protocol import EngineSpec, OpenStore
from thetastream.engine.two_stream.query import UnitState
from thetastream.engine.two_stream.spec import ExtendedSpec
from thetastream.engine.two_stream.unit import Unit

ARRIVAL_LEFT, ARRIVAL_RIGHT = "arrival_left", "arrival_right"
"""Columns of ordered results with the arrival numbers of the left and the right tuple of a pair."""


class PunctuatedUnit(Unit):
    """A unit of a join with punctuations. Unit 0 adds the punctuations of the epoch to its results."""

    def __init__(self, spec: "PunctuatedSpec", slot: int, state: UnitState, open_store: OpenStore) -> None:
        super().__init__(spec.join.unit, spec.join.model, slot, state, open_store(spec.join.unit.plans))
        self._punctuations = spec if slot == 0 else None
        self._left_arrivals = np.zeros(0, dtype=np.int64)

    def number(self, times: tuple[Int64s, Int64s]) -> tuple[Numbers, ...]:
        """Number the tuples of an epoch, and keep the arrivals of the left tuples."""
        numbers = super().number(times)
        self._left_arrivals = np.sum(numbers[Side.LEFT].seen, axis=0)
        return numbers

    def epoch(self, inbox: Inbox, clock: Clock) -> Iterator[list[pa.Array]]:
        """Run one epoch and yield the columns of the matches, then those of the punctuations."""
        before = sum(self._arrived)
        yield from super().epoch(inbox, clock)
        if self._punctuations is not None and inbox.peers.is_newest(clock.epoch):
            numbers = self._punctuations.order.list_punctuations(before, sum(self._arrived))
            is_left = np.isin(numbers, self._left_arrivals)
            yield build_punctuations(numbers, is_left, self._punctuations.columns)


def build_punctuations(numbers: Int64s, is_left: npt.NDArray[np.bool_], columns: pa.Schema) -> list[pa.Array]:
    """Build punctuations as columns of results: only the number of the arrival that they follow is not NULL.

    ``is_left`` says whether the arrivals are those of left tuples.
    """
    arrivals = {
        ARRIVAL_LEFT: pa.array(numbers, mask=~is_left),
        ARRIVAL_RIGHT: pa.array(numbers, mask=is_left),
    }
    return [arrivals.get(field.name, pa.nulls(len(numbers), field.type)) for field in columns]


@dataclass(frozen=True)
class PunctuatedSpec(ExtendedSpec):
    """Spec of a two-stream join whose results include punctuations."""

    order: Order
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))
    """The schema of the results. It is told before a unit opens (``tell_columns``)."""

    state_type: ClassVar[type[UnitState]] = UnitState

    def open(self, slot: int, state: UnitState, open_store: OpenStore) -> PunctuatedUnit:
        """Open the unit with number ``slot``."""
        return PunctuatedUnit(self, slot, state, open_store)


def tell_columns(columns: pa.Schema, spec: EngineSpec) -> PunctuatedSpec:
    """Return the spec of a join with punctuations that knows the schema of its results."""
    assert isinstance(spec, PunctuatedSpec)
    return replace(spec, columns=columns)
