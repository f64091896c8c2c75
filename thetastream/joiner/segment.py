"""What a unit remembers: segments, and where they live.

A segment is one run plus its name card. The card (``SegmentMeta``) goes into the manifest; the run
lives in a ``SegmentStore``: a dictionary here, Spark's state store and a mapped file there.
"""

import uuid
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from thetastream.joiner.run import Run


@dataclass(frozen=True)
class SegmentMeta:
    """Name card of a segment: enough to skip, expire and merge it without opening it."""

    id: str
    """Unique per attempt, so a retried task never meets a neighbour's half-written segment."""
    stream: int
    """Whose tuples: the position of a stream among those that are joined."""
    period: int
    """Archive period: floor(event time / period length)."""
    n_rows: int
    nbytes: int
    """In memory: payload, key rows, directory."""
    min_ts: int
    max_ts: int
    """Event times in microseconds."""
    durable_bytes: int = 0
    """In the store that survives: payload only, as the store writes it."""

    def as_json(self) -> dict[str, Any]:
        """Plain values, for the manifest."""
        return asdict(self) | {"stream": int(self.stream)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SegmentMeta":
        """Inverse of ``as_json``."""
        return cls(**values)


class SegmentStore(Protocol):
    """Where runs are kept between epochs."""

    def put(self, meta: SegmentMeta, run: Run) -> int:
        """Keep ``run`` under ``meta.id``; return the bytes that takes durably."""

    def get(self, meta: SegmentMeta) -> Run:
        """The run kept under ``meta.id``."""

    def drop(self, meta: SegmentMeta) -> None:
        """Forget it."""

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        """Keep a block that has no index."""

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        """The block of so many rows kept under ``name``."""

    def drop_block(self, name: str) -> None:
        """Forget it."""


class MemoryStore:
    """Runs in a dictionary, for one process."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._blocks: dict[str, pa.RecordBatch] = {}

    def put(self, meta: SegmentMeta, run: Run) -> int:
        self._runs[meta.id] = run
        return int(run.payload.nbytes)

    def get(self, meta: SegmentMeta) -> Run:
        return self._runs[meta.id]

    def drop(self, meta: SegmentMeta) -> None:
        del self._runs[meta.id]

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        self._blocks[name] = block

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        return self._blocks[name]

    def drop_block(self, name: str) -> None:
        del self._blocks[name]


def describe(stream: int, period: int, run: Run) -> SegmentMeta:
    """Name card for a new segment."""
    times = run.rows[:, 0]
    return SegmentMeta(
        uuid.uuid4().hex, stream, period, run.n_rows, run.nbytes, int(times.min()), int(times.max())
    )
