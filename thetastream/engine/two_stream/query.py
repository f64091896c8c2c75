"""The fixed properties of a two-stream join, and the state of its units."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.segment import SegmentMeta
from thetastream.engine.store.stored_stream import StoredStream, compute_lifetime_us
from thetastream.engine.two_stream.count_windows import apply_count_windows
from thetastream.index.base import IndexSpec

SUBINDEXES_PER_WINDOW = 10
"""The default number of archive periods per window. With it, tuples stay in memory for a tenth of the window
after they have left it."""


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

    def as_json(self) -> dict[str, Any]:
        """Convert the state to plain values for the manifest."""
        return {"segments": [meta.as_json() for meta in self.segments], "arrived": self.arrived}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "UnitState":
        """Build a state from the values that ``as_json`` returned."""
        return cls(
            [SegmentMeta.from_json(meta) for meta in values["segments"]],
            tuple(int(n) for n in values["arrived"]),
        )
