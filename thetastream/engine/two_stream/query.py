"""The fixed properties of a two-stream join, and the state and the arrivals of its units.

A count window is a condition on the numbers of tuples (``thetastream.engine.arrival``). A window of n tuples
of S is an interval of numbers: an arriving r meets the stored s with seen(r) - n <= sequence(s) < seen(r).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.blocks import RowFacts
from thetastream.core.columns import SEEN, SEQUENCE
from thetastream.core.condition import (
    SUBINDEXES_PER_WINDOW,
    TIME,
    Bound,
    Condition,
    Dimension,
    Domain,
    Key,
    compute_lifetime_us,
)
from thetastream.core.keys import Int64s
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan, StoredStream
from thetastream.engine.store.segment import SegmentMeta
from thetastream.index.base import IndexSpec


@dataclass(frozen=True)
class UnitSpec:
    """The fixed properties of a two-stream join. Picklable."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None
    counts: tuple[int, ...] | None = None
    """The sizes of count windows: how many left and how many right tuples stay joinable. None without count
    windows."""
    is_ordered: bool = False
    """Whether matches contain the places of both tuples in the order of arrival."""

    @cached_property
    def plans(self) -> dict[int, IndexPlan]:
        """How the stored tuples of each side are indexed and checked."""
        conditions = (
            [self.condition] * 2 if self.counts is None else apply_count_windows(self.condition, self.counts)
        )
        return {side: IndexPlan(conditions[side], side, self.indexes[side]) for side in Side}

    @property
    def has_event_time(self) -> bool:
        """Whether a stream has an event time."""
        return any(side.time is not None for side in self.condition.sides)

    def describe_stored(self, side: Side) -> StoredStream:
        """Describe how the tuples of one side are stored. In a count window, times are numbers of tuples."""
        plan = self.plans[side]
        lifetime = compute_lifetime_us(plan.condition.window, side)
        if lifetime is not None and self.condition.sides[side].has_deletes:
            # The delete of a tuple is late when the watermark has reached its event time, and not before.
            lifetime = max(lifetime, 0)
        if self.counts is not None:
            period = -(-self.counts[side] // SUBINDEXES_PER_WINDOW)
            return StoredStream(side, plan, period, lifetime)
        # Tuples that never expire need no archive periods.
        return StoredStream(side, plan, None if lifetime is None else self.archive_period_us, lifetime)


@dataclass
class UnitState:
    """The state that a unit keeps from epoch to epoch."""

    segments: list[SegmentMeta] = field(default_factory=list)
    arrived: tuple[int, ...] = ()
    """The number of tuples of each stream so far, for units that see all tuples."""


def apply_count_windows(condition: Condition, counts: Sequence[int]) -> tuple[Condition, Condition]:
    """Add count windows to a condition; return one condition for stored left and one for stored right tuples.

    Sequence numbers replace event times. Each side gets one more key, the column ``m``: the number of tuples
    of the other stream that arrived before the tuple.
    """
    sides = tuple(
        replace(side, time=Key(SEQUENCE, Domain.INT), keys=(*side.keys, Key(SEEN, Domain.INT)))
        for side in condition.sides
    )
    left, right = (
        replace(
            condition,
            sides=(sides[0], sides[1]),
            window=Dimension(
                stored, TIME, Bound(_find_seen_key(condition, stored.other), -counts[stored]),
                Bound(_find_seen_key(condition, stored.other), -1),
                f"the last {counts[stored]} of {sides[stored].alias}",
            ),
        )
        for stored in Side
    )  # fmt: skip
    return left, right


def _find_seen_key(condition: Condition, side: Side) -> int:
    return len(condition.sides[side].keys)


class Tuples(NamedTuple):
    """Tuples of an epoch with their key rows. A selection of them shares the columns of all."""

    facts: RowFacts
    """Those of all tuples from which these were selected."""
    rows: Int64s
    places: Int64s | None = None
    """The positions of these tuples among all; None stands for all."""

    @property
    def payload(self) -> pa.RecordBatch:
        """The columns of these tuples."""
        return self.facts.batch if self.places is None else self.facts.batch.take(self.places)

    def take(self, mask: npt.NDArray[np.bool_]) -> "Tuples":
        """Select the tuples for which ``mask`` is true."""
        kept = np.flatnonzero(mask)
        places = kept if self.places is None else self.places[kept]
        return Tuples(self.facts, self.rows.take(kept, axis=0), places)


class Arrivals(NamedTuple):
    """The new tuples of one stream at a unit: those that probe, and those that the unit stores."""

    probing: Tuples | None
    storing: Tuples | None


def split_tuples(tuples: Tuples | None, stretch: int) -> tuple[Tuples | None, Tuples | None]:
    """Split tuples by the stretches of event time in which they lie: those of even and of odd stretches."""
    if tuples is None:
        return None, None
    second = (tuples.rows[:, 0] // stretch) % 2 == 1
    if not second.any():
        return tuples, None
    return (None, tuples) if second.all() else (tuples.take(~second), tuples.take(second))
