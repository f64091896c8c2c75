"""Durable segments: Spark's state store holds them, and a file on the host caches each of them.

For each unit, the state store keeps the payload of every segment as compressed Arrow IPC, in parts. Only this
copy is authoritative. In addition, a file on the host holds the sorted payload, the key rows and the
directory (``thetastream.runtime.state.segment_cache``). A file that is missing or incomplete is rebuilt from
the state store.

A small segment has one part, because each call to the state store crosses a socket to the JVM.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from thetastream.core.errors import StateError
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta
from thetastream.runtime.state.segment_cache import discard, load, save

PART_BYTES = 1 << 23
"""Maximum size of one value in the state store; larger blocks are split into parts."""
MOST_PARTS = 1 << 10
"""A number that is larger than the number of parts of any block. Arrow blocks have less than 2 GiB, and
compression may make them a little larger."""
_N_PARTS = struct.Struct("<I")
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd")


class PartMap(Protocol):
    """The methods of Spark's MapState that the store calls; the map is (segment id, part) -> bytes."""

    def getValue(self, key: tuple[str, int]) -> tuple[bytes] | None: ...
    def updateValue(self, key: tuple[str, int], value: tuple[bytes]) -> None: ...
    def removeKey(self, key: tuple[str, int]) -> None: ...


class DurableStore:
    """The segments of one unit, in Spark's state store and in the cache of the host.

    Parameters
    ----------
    parts : PartMap
        Spark's MapState of the unit.
    plans : mapping of int to IndexPlan
        For each stream, the plan by which the index of a segment is rebuilt.
    root : Path
        The folder of the cache on this host.
    """

    def __init__(self, parts: PartMap, plans: Mapping[int, IndexPlan], root: Path) -> None:
        self._parts = parts
        self._plans = plans
        self._root = root
        self._open: dict[str, Run] = {}
        self._new: set[str] = set()
        """Identifiers of the segments that have been put in this epoch and not yet written."""

    def put(self, meta: SegmentMeta, run: Run) -> None:
        self._new.add(meta.id)
        self._open[meta.id] = run

    def write(self, meta: SegmentMeta) -> int:
        self._new.remove(meta.id)
        run = self._open[meta.id]
        save(self._root / meta.id, run, self._plans[meta.stream])
        return write_block(self._parts, meta.id, run.payload)

    def get(self, meta: SegmentMeta) -> Run:
        if meta.id not in self._open:
            path, plan = self._root / meta.id, self._plans[meta.stream]
            try:
                run = load(path, plan)
            except (OSError, EOFError, ValueError, KeyError, TypeError, struct.error, pa.ArrowException):
                run = build(plan, self.get_block(meta.id, meta.n_rows))
                discard(path)
                save(path, run, plan)
            self._open[meta.id] = run
        return self._open[meta.id]

    def drop(self, meta: SegmentMeta) -> None:
        self._open.pop(meta.id, None)
        if meta.id in self._new:
            self._new.remove(meta.id)
        else:
            _remove_parts(self._parts, meta.id, _count_parts(meta.durable_bytes))
            discard(self._root / meta.id)

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        write_block(self._parts, name, block)

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        return read_block(self._parts, name, n_rows)

    def drop_block(self, name: str) -> None:
        remove_block(self._parts, name)


def write_block(parts: PartMap, name: str, block: pa.RecordBatch) -> int:
    """Store a block as compressed Arrow IPC, in parts; return its size in bytes.

    The first part begins with the number of parts.
    """
    data = _to_ipc(block)
    n_parts = _count_parts(data.size)
    for part in range(n_parts):
        piece = data.slice(part * PART_BYTES, min(PART_BYTES, data.size - part * PART_BYTES)).to_pybytes()
        parts.updateValue((name, part), (piece if part else _N_PARTS.pack(n_parts) + piece,))
    return int(data.size)


def read_block(parts: PartMap, name: str, n_rows: int) -> pa.RecordBatch:
    """Read a stored block, and check that it has ``n_rows`` rows.

    Raises
    ------
    StateError
        SEGMENT_MISSING or SEGMENT_DAMAGED.
    """
    n_parts, first = _read_first_part(parts, name)
    data = b"".join([first, *(_value(parts, name, part) for part in range(1, n_parts))])
    try:
        with pa.ipc.open_stream(data) as reader:
            batch = next(iter(reader), None)
    except (pa.ArrowException, OSError) as error:
        raise StateError("SEGMENT_DAMAGED", f"segment {name} is not Arrow data: {error}") from error
    if batch is None or batch.num_rows != n_rows:
        held = "no block" if batch is None else batch.num_rows
        raise StateError("SEGMENT_DAMAGED", f"segment {name} must hold {n_rows} tuples; it holds {held}")
    return batch


def remove_block(parts: PartMap, name: str) -> None:
    """Remove a stored block from the state store."""
    _remove_parts(parts, name, _read_first_part(parts, name)[0])


def _remove_parts(parts: PartMap, name: str, n_parts: int) -> None:
    for part in range(n_parts):
        parts.removeKey((name, part))


def _count_parts(n_bytes: int) -> int:
    return -(-n_bytes // PART_BYTES)


def _read_first_part(parts: PartMap, name: str) -> tuple[int, bytes]:
    """Return the number of parts, and the data of the first one."""
    value = _value(parts, name, 0)
    n_parts = _N_PARTS.unpack_from(value)[0] if len(value) > _N_PARTS.size else 0
    if not 0 < n_parts <= MOST_PARTS:
        raise StateError(
            "SEGMENT_DAMAGED",
            f"segment {name} must begin with its number of parts; it begins with {value!r:.80}",
        )
    return n_parts, value[_N_PARTS.size :]


def _value(parts: PartMap, name: str, part: int) -> bytes:
    value = parts.getValue((name, part))
    if value is None:
        raise StateError(
            "SEGMENT_MISSING",
            f"the manifest names segment {name} but its part {part} is not in the state store; "
            "the checkpoint is damaged",
        )
    return bytes(value[0])


def _to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITE) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
