"""Segments, and the protocol of the stores that keep them.

A segment is one run and its metadata. The metadata (``SegmentMeta``) is kept in the manifest, and the run is
kept in a ``SegmentStore``: the store of this module is a dictionary, and the durable store uses Spark's state
store and cached files.
"""

import uuid
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from thetastream.engine.store.run import Run


@dataclass(frozen=True)
class SegmentMeta:
    """Metadata of a segment. A unit reads no more than this to decide whether to skip, expire or merge the
    segment."""

    id: str
    """Unique identifier. Each attempt of a Spark task chooses a new one, so a retried task never reads a
    segment that a failed attempt has written in part."""
    stream: int
    """Number of the stream that the tuples belong to."""
    period: int
    """Archive period: floor(event time / period length)."""
    n_rows: int
    nbytes: int
    """Bytes in memory: payload, key rows and directory."""
    min_ts: int
    max_ts: int
    """The earliest and the latest event time, in microseconds."""
    durable_bytes: int = 0
    """Bytes in the durable store, which keeps the payload only; 0 until the segment is written."""


class SegmentStore(Protocol):
    """A store that keeps runs between epochs."""

    def put(self, meta: SegmentMeta, run: Run) -> None:
        """Keep a new run under ``meta.id``, for this epoch only."""

    def write(self, meta: SegmentMeta) -> int:
        """Write a run that was put in this epoch to durable storage; return the bytes that it takes there."""

    def get(self, meta: SegmentMeta) -> Run:
        """Read the run that is kept under ``meta.id``."""

    def drop(self, meta: SegmentMeta) -> None:
        """Drop the run that is kept under ``meta.id``."""

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        """Store a block that has no index."""

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        """Read the block of ``n_rows`` rows that is stored under ``name``."""

    def drop_block(self, name: str) -> None:
        """Drop the block that is stored under ``name``."""


class MemoryStore:
    """A store that keeps runs in a dictionary of this process."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._blocks: dict[str, pa.RecordBatch] = {}

    def put(self, meta: SegmentMeta, run: Run) -> None:
        self._runs[meta.id] = run

    def write(self, meta: SegmentMeta) -> int:
        return int(self._runs[meta.id].payload.nbytes)

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
    """Build the metadata of a new segment."""
    times = run.rows[:, 0]
    return SegmentMeta(
        uuid.uuid4().hex, stream, period, run.n_rows, run.nbytes, int(times.min()), int(times.max())
    )
