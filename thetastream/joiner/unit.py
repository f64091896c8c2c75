"""One unit of any model: late filter, expire, probe, store, in the global order.

The global order is epochs in sequence and, inside an epoch, R1 before all of S before R2. Spark's
epoch barrier is the punctuation of BiStream's order-consistent protocol (section 3.2.3): when an
epoch's blocks are here, all earlier tuples are. Each part in turn probes the other side as stored by
then and is stored itself, so every pair meets exactly once, at the unit that stores one and is probed
by the other.

Pairs inside one epoch, most of all pairs when epochs are long, would all meet at the units that
store R if R came first. R is therefore cut by event time, in stretches of ``SHARED_PERIODS`` archive
periods, by default half a window: R1 meets S at the units of R, R2 at those of S.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.condition import Condition, IndexSpec
from thetastream.joiner.box import Plan, key_rows
from thetastream.joiner.chain import SHARED_PERIODS, ChainedIndex, joinable_us
from thetastream.joiner.residual import Residual
from thetastream.joiner.segment import SegmentMeta, SegmentStore
from thetastream.keys import Int64s
from thetastream.types import Role, Side


@dataclass
class Counters:
    """What one unit did in one epoch."""

    stored: int = 0
    probed: int = 0
    matched: int = 0
    late: int = 0
    expired: int = 0
    candidates: int = 0
    segments: int = 0
    mlv_bytes: int = 0
    """Memory load volume: bytes of the stored tuples and their index."""
    state_bytes: int = 0
    """Bytes of the stored tuples as the durable store holds them."""
    emitted_bytes: int = 0
    """Bytes of the rows that leave the unit, as Arrow."""


def places(side: int, role: int) -> list[tuple[Side, Role]]:
    """Where in an inbox a block goes, by the numbers it travels with."""
    return [(Side(side), part) for part in Role(role).parts]


class Matches(NamedTuple):
    """Joined tuples: row i of ``left`` with row i of ``right``."""

    left: pa.RecordBatch
    right: pa.RecordBatch


@dataclass(frozen=True)
class UnitSpec:
    """All that a unit needs to know of the query; picklable."""

    condition: Condition
    indexes: tuple[IndexSpec, IndexSpec]
    archive_period_us: int | None


class Admitted(NamedTuple):
    """Tuples that take part in an epoch, with their key rows."""

    payload: pa.RecordBatch
    rows: Int64s

    def take(self, mask: npt.NDArray[np.bool_]) -> "Admitted":
        """Those where ``mask`` is true."""
        kept = np.flatnonzero(mask)
        return Admitted(self.payload.take(kept), self.rows[kept])


@dataclass
class Inbox:
    """An epoch's blocks for one unit, one batch per side and role."""

    batches: dict[tuple[Side, Role], pa.RecordBatch] = field(default_factory=dict)


class Unit:
    """A slot of a model with its own state.

    Parameters
    ----------
    spec : UnitSpec
        The query.
    segments : list of SegmentMeta
        What the manifest names: the state before this epoch.
    store : SegmentStore
        Where runs live.
    is_home : (bool, bool)
        Whether left and right tuples stored here are counted if they are late; copies are not.
    """

    def __init__(
        self,
        spec: UnitSpec,
        segments: list[SegmentMeta],
        store: SegmentStore,
        is_home: tuple[bool, bool] = (True, True),
    ) -> None:
        self._spec = spec
        self._is_home = is_home
        self._residual = Residual(spec.condition)
        self._chains = {
            side: ChainedIndex(
                Plan(spec.condition, side, spec.indexes[side]),
                [meta for meta in segments if meta.side is side],
                store,
                self._archive_period(side),
            )
            for side in Side
        }
        self.counters = Counters()

    def _archive_period(self, side: Side) -> int | None:
        # What never expires is merged without regard to time.
        is_bounded = joinable_us(self._spec.condition.window, side) is not None
        return self._spec.archive_period_us if is_bounded else None

    @property
    def segments(self) -> list[SegmentMeta]:
        """The manifest after what has been done so far."""
        return [meta for chain in self._chains.values() for meta in chain.segments]

    def epoch(self, inbox: Inbox, watermark_us: int | None) -> Iterator[Matches]:
        """Run one epoch; exhaust the iterator, then read ``segments`` and ``counters``.

        Parameters
        ----------
        inbox : Inbox
            This epoch's blocks.
        watermark_us : int or None
            Spark's watermark of the epoch in microseconds; None while there is none.
        """
        for chain in self._chains.values():
            self.counters.expired += chain.expire(watermark_us)
            chain.archive(watermark_us)
        admitted = {
            (side, role): self._admit(inbox, side, role, watermark_us) for side in Side for role in Role
        }
        left = {role: self._halves(admitted[Side.LEFT, role]) for role in Role}
        yield from self._turn(Side.LEFT, left[Role.PROBE][0], left[Role.STORE][0])
        yield from self._turn(Side.RIGHT, admitted[Side.RIGHT, Role.PROBE], admitted[Side.RIGHT, Role.STORE])
        yield from self._turn(Side.LEFT, left[Role.PROBE][1], left[Role.STORE][1])
        self.counters.segments = len(self.segments)
        self.counters.mlv_bytes = sum(meta.nbytes for meta in self.segments)
        self.counters.state_bytes = sum(meta.durable_bytes for meta in self.segments)

    def _admit(self, inbox: Inbox, side: Side, role: Role, watermark_us: int | None) -> "Admitted | None":
        """The block's tuples that are not late."""
        batch = inbox.batches.get((side, role))
        if batch is None or not batch.num_rows:
            return None
        rows = key_rows(side, self._spec.condition, batch)
        if watermark_us is None or self._spec.condition.sides[side].time is None:
            return Admitted(batch, rows)
        timely = rows[:, 0] > watermark_us
        if timely.all():
            return Admitted(batch, rows)
        if role is Role.STORE and self._is_home[side]:  # so each tuple is counted once
            self.counters.late += int(len(rows) - timely.sum())
        return Admitted(batch, rows).take(timely)

    def _halves(self, admitted: "Admitted | None") -> tuple["Admitted | None", "Admitted | None"]:
        """R1 and R2: stretches of event time in turn, the same for every unit that sees a tuple."""
        if admitted is None or self._spec.archive_period_us is None:
            return admitted, None
        stretch = self._spec.archive_period_us * SHARED_PERIODS
        second = (admitted.rows[:, 0] // stretch) % 2 == 1
        if not second.any():
            return admitted, None
        return (None, admitted) if second.all() else (admitted.take(~second), admitted.take(second))

    def _turn(self, side: Side, probing: "Admitted | None", storing: "Admitted | None") -> Iterator[Matches]:
        if probing is not None:
            yield from self._probe(side, probing.payload, probing.rows)
        if storing is not None:
            self._chains[side].insert(storing.payload, storing.rows)
            self.counters.stored += len(storing.rows)

    def _probe(self, side: Side, payload: pa.RecordBatch, rows: Int64s) -> Iterator[Matches]:
        self.counters.probed += len(rows)
        width = payload.nbytes / len(rows) if len(rows) else 0.0
        for found, partner, stored, candidates in self._chains[side.other].probe(rows, width):
            self.counters.candidates += candidates
            found, stored = self._residual.keep(side, payload, found, partner, stored)
            if not len(found):
                continue
            self.counters.matched += len(found)
            mine = self._gather(side, payload, found)
            theirs = self._gather(side.other, partner, stored)
            yield Matches(mine, theirs) if side is Side.LEFT else Matches(theirs, mine)

    def _gather(self, side: Side, batch: pa.RecordBatch, rows: Int64s) -> pa.RecordBatch:
        columns = list(self._spec.condition.sides[side].columns)
        return batch.select(columns).take(rows)
