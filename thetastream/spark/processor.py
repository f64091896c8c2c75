"""The unit inside Spark: one grouping key is one unit, one call is one epoch.

Spark's state store is the only recovery log: manifest and segments are written within the epoch
and committed with it, so a retried, speculative or restarted task begins from the last commit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from thetastream.aggregate import Fold
from thetastream.blocks import concat, unpack
from thetastream.joiner.box import Plan
from thetastream.joiner.unit import Inbox, Unit, UnitSpec, places
from thetastream.spark.emit import Emitter, outcome
from thetastream.spark.manifest import Fingerprint, decode, encode
from thetastream.spark.segments import DurableStore, cache_root, sweep
from thetastream.spark.worker import settle
from thetastream.types import Role, Side

_MANIFEST = StructType([StructField("manifest", StringType())])
_PART_KEY = StructType([StructField("id", StringType()), StructField("part", IntegerType())])
_PART = StructType([StructField("data", BinaryType())])


@dataclass(frozen=True)
class ProcessorSpec:
    """What travels to the workers."""

    unit: UnitSpec
    units: dict[int, int] = field(hash=False)
    """Grouping key -> unit."""
    homes: tuple[tuple[bool, bool], ...]
    """By unit: ``Model.is_home`` of left and right tuples."""
    fingerprint: Fingerprint = field(hash=False)
    emitter: Emitter
    cache_folder: str | None
    fold: Fold | None = None


class JoinProcessor(StatefulProcessor):
    """Spark's stateful processor around ``Unit``."""

    def __init__(self, spec: ProcessorSpec) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._manifest = handle.getValueState("manifest", _MANIFEST)
        self._parts = handle.getMapState("segments", _PART_KEY, _PART)

    def handleInputRows(  # type: ignore[override]
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        settle()
        spec = self._spec
        # 1. State as committed by the epoch before.
        value = self._manifest.get() if self._manifest.exists() else None
        segments = decode(None if value is None else value[0], spec.fingerprint)
        plans = {side: Plan(spec.unit.condition, side, spec.unit.indexes[side]) for side in Side}
        root = cache_root(spec.cache_folder)
        sweep(root)
        store = DurableStore(self._parts, plans, root)
        number = spec.units[int(key[0])]
        unit = Unit(spec.unit, segments, store, spec.homes[number])
        # 2. The epoch.
        matches = unit.epoch(read_inbox(rows), watermark_us(timerValues))
        for columns in outcome(spec.fold, matches):
            unit.counters.emitted_bytes += sum(column.nbytes for column in columns)
            yield spec.emitter.results(columns)
        # 3. State for the next one.
        self._manifest.update((encode(spec.fingerprint, unit.segments),))
        yield spec.emitter.counters(number, unit.counters)

    def close(self) -> None:
        pass


def read_inbox(frames: Iterator[pd.DataFrame]) -> Inbox:
    """This epoch's blocks by side and role."""
    parts: dict[tuple[Side, Role], list[pa.RecordBatch]] = {}
    for frame in frames:
        for side, role, data in zip(frame["side"], frame["role"], frame["block"], strict=True):
            block = unpack(data)
            for at in places(side, role):
                parts.setdefault(at, []).append(block)
    return Inbox({at: concat(batches) for at, batches in parts.items()})


def watermark_us(timers: Any) -> int | None:
    """Spark's watermark of this epoch in microseconds; 0 or -1 ms mean that there is none yet."""
    watermark_ms = timers.getCurrentWatermarkInMs()
    return None if watermark_ms is None or watermark_ms <= 0 else int(watermark_ms) * 1000
