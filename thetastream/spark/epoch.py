"""A unit's epoch inside Spark.

Spark's state store is the only recovery log: manifest and segments are written within the epoch
and committed with it, so a retried, speculative or restarted task begins from the last commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from thetastream.aggregate import Fold
from thetastream.blocks import unpack
from thetastream.joiner.clock import Clock
from thetastream.joiner.inbox import Inbox
from thetastream.joiner.unit import Unit, UnitSpec, UnitState
from thetastream.models.base import Model
from thetastream.order import Order
from thetastream.spark.emit import Emitter, outcome, weighed
from thetastream.spark.held import updates
from thetastream.spark.manifest import Fingerprint, Heard, State, decode, encode
from thetastream.spark.ordered import punctuations
from thetastream.spark.posting import epoch_number
from thetastream.spark.segments import DurableStore, PartMap, cache_root, sweep
from thetastream.spark.worker import settle

S = TypeVar("S", bound=State)


def begin(
    manifest: Any, fingerprint: Fingerprint, cache_folder: str | None, kind: type[S], timers: Any
) -> tuple[S, Clock, Path]:
    """State as committed by the epoch before, what time it is, and the host's folder for segments.

    Raises
    ------
    StateError
        If the checkpoint is damaged, of another format or another query.
    """
    settle()
    value = manifest.get() if manifest.exists() else None
    heard, state = decode(None if value is None else value[0], fingerprint, kind)
    root = cache_root(cache_folder)
    sweep(root)
    late_us = None if heard is None else heard.watermark_us
    return state, Clock(epoch_number(), late_us, watermark_us(timers)), root


def end(
    manifest: Any, fingerprint: Fingerprint, clock: Clock, state: State, has_watermark: bool, handle: Any
) -> None:
    """Keep the state, and have Spark call the unit when the watermark moves, even if no tuples come then."""
    manifest.update((encode(fingerprint, Heard(clock.epoch, clock.watermark_us), state),))
    if not has_watermark:
        return
    before_ms, now_ms = ((time or 0) // 1000 for time in (clock.late_us, clock.watermark_us))
    if before_ms != now_ms:
        handle.deleteTimer(before_ms + 1)
    handle.registerTimer(now_ms + 1)


@dataclass(frozen=True)
class EpochSpec:
    """What travels to the workers."""

    unit: UnitSpec
    model: Model
    slots: dict[int, int] = field(hash=False)
    """Grouping key -> slot of the model."""
    fingerprint: Fingerprint = field(hash=False)
    emitter: Emitter
    cache_folder: str | None
    has_watermark: bool = False
    fold: Fold | None = None
    punctuated: Order | None = None
    """The order whose punctuations are rows of the output."""

    def run(
        self, key: int, rows: Iterator[pd.DataFrame], timers: Any, manifest: Any, parts: PartMap, handle: Any
    ) -> Iterator[pd.DataFrame]:
        """One unit's epoch: results, and a row of counters.

        Parameters
        ----------
        key : int
            The grouping key that stands for the unit.
        rows, timers
            As Spark hands them to a stateful processor.
        manifest : ValueState
        parts : MapState
            What the epoch before committed.
        handle : StatefulProcessorHandle
            For timers.
        """
        # 1. State as committed by the epoch before.
        state, clock, root = begin(manifest, self.fingerprint, self.cache_folder, UnitState, timers)
        store = DurableStore(parts, self.unit.plans, root)
        slot = self.slots[key]
        unit = Unit(self.unit, self.model, slot, state, store)
        # 2. The epoch.
        inbox = read_inbox(rows)
        matches = unit.epoch(inbox, clock)
        if self.fold is None or self.fold.lazy is None:
            leaving = outcome(self.fold, matches)
        else:
            leaving = updates(self.fold, self.unit.condition, inbox, matches, clock.watermark_us, parts)
        yield from self.emitter.gathered(weighed(leaving, unit.counters))
        if self.punctuated is not None and slot == 0:
            numbers = self.punctuated.punctuations(sum(state.arrived), sum(unit.state.arrived))
            yield self.emitter.results(punctuations(numbers, self.emitter.columns))
        # 3. State for the next one.
        end(manifest, self.fingerprint, clock, unit.state, self.has_watermark, handle)
        yield self.emitter.counters(slot, unit.counters)


def read_inbox(frames: Iterator[pd.DataFrame]) -> Inbox:
    """This epoch's blocks."""
    inbox = Inbox()
    for frame in frames:
        headers = (frame[name] for name in ("side", "role", "origin", "block"))
        for side, role, origin, data in zip(*headers, strict=True):
            if len(data):  # an empty block only says that there is an epoch
                inbox.add(side, role, origin, unpack(data), len(data))
    return inbox


def watermark_us(timers: Any) -> int | None:
    """Spark's watermark of this epoch in microseconds; 0 or -1 ms mean that there is none yet."""
    watermark_ms = timers.getCurrentWatermarkInMs()
    return None if watermark_ms is None or watermark_ms <= 0 else int(watermark_ms) * 1000
