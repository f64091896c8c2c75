"""Durable segments: Spark's state store holds them, and a mapped file on the host caches them.

For each unit, the state store keeps the payload of every segment as compressed Arrow IPC, in parts. Only this
copy is authoritative. In addition, a folder on the host holds the sorted payload, the key rows and the
directory. The Python worker that runs the unit's next epoch maps these files into memory. A missing or
incomplete folder is rebuilt from the state store.
"""

import contextlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from thetastream.core.keys import Int64s
from thetastream.core.row_bytes import RowBytes
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.engine.store.segment import SegmentMeta
from thetastream.errors import StateError

PART_BYTES = 1 << 23
"""Maximum size of one value in the state store; larger blocks are split into parts."""
STALE_S = 3600
"""A cached segment that no worker has mapped for this many seconds is removed."""
SWEEP_EVERY_S = 600
"""Seconds between two sweeps on one host."""
_WRITE = pa.ipc.IpcWriteOptions(compression="zstd")


class PartMap(Protocol):
    """The methods of Spark's MapState that the store calls; the map is (segment id, part) -> bytes."""

    def getValue(self, key: tuple[str, int]) -> tuple[bytes] | None: ...
    def updateValue(self, key: tuple[str, int], value: tuple[bytes]) -> None: ...
    def removeKey(self, key: tuple[str, int]) -> None: ...


def cache_root(folder: str | None = None) -> Path:
    """Choose the folder on this host for mapped segments: in ``folder``, or else in Spark's local directory.

    Spark removes its local directories, and the cache in them, when the executor ends. The name of the folder
    contains the boot id of the host, so files that were not completely on disk when a host crashed are never
    read again.
    """
    base = folder or os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
    return Path(base) / f"{_family()}{_boot()}"


def _family() -> str:
    return f"thetastream-{os.getuid()}-"


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return "host"


def sweep(root: Path) -> None:
    """Remove cached segments that no worker has mapped for an hour, at most once in ten minutes per host.

    Such segments remain from attempts that failed, units that moved to another host and queries that ended.
    If a segment is still live, it is rebuilt when it is needed again.
    """
    now = time.time()
    marker = root / ".swept"
    with contextlib.suppress(OSError):
        if now - marker.stat().st_mtime < SWEEP_EVERY_S:
            return
    with contextlib.suppress(OSError):
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        marker.touch()
        earlier_boots = (
            entry
            for entry in os.scandir(root.parent)
            if entry.name.startswith(_family()) and entry.name != root.name
        )
        for entry in (*os.scandir(root), *earlier_boots):
            if entry.is_dir() and now - entry.stat().st_mtime > STALE_S:
                shutil.rmtree(entry.path, ignore_errors=True)


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

    def put(self, meta: SegmentMeta, run: Run) -> int:
        n_bytes = write_block(self._parts, meta.id, run.payload)
        self._open[meta.id] = run
        save(self._root / meta.id, run, self._plans[meta.stream])
        return n_bytes

    def get(self, meta: SegmentMeta) -> Run:
        if meta.id not in self._open:
            try:
                run = load(self._root / meta.id, self._plans[meta.stream])
            except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
                run = build(self._plans[meta.stream], self.get_block(meta.id, meta.n_rows))
                # A damaged folder would block the rename.
                shutil.rmtree(self._root / meta.id, ignore_errors=True)
                save(self._root / meta.id, run, self._plans[meta.stream])
            self._open[meta.id] = run
        return self._open[meta.id]

    def drop(self, meta: SegmentMeta) -> None:
        self.drop_block(meta.id)
        self._open.pop(meta.id, None)
        shutil.rmtree(self._root / meta.id, ignore_errors=True)

    def put_block(self, name: str, block: pa.RecordBatch) -> None:
        write_block(self._parts, name, block)

    def get_block(self, name: str, n_rows: int) -> pa.RecordBatch:
        return read_block(self._parts, name, n_rows)

    def drop_block(self, name: str) -> None:
        remove_block(self._parts, name)


def write_block(parts: PartMap, name: str, block: pa.RecordBatch) -> int:
    """Store a block as compressed Arrow IPC, in parts; return its size in bytes."""
    data = _to_ipc(block)
    n_parts = -(-data.size // PART_BYTES)
    for part in range(n_parts):
        piece = data.slice(part * PART_BYTES, min(PART_BYTES, data.size - part * PART_BYTES))
        parts.updateValue((name, part), (piece.to_pybytes(),))
    parts.updateValue((name, -1), (json.dumps({"parts": n_parts}).encode(),))
    return int(data.size)


def read_block(parts: PartMap, name: str, n_rows: int) -> pa.RecordBatch:
    """Read a stored block, and check that it has ``n_rows`` rows.

    Raises
    ------
    StateError
        SEGMENT_MISSING or SEGMENT_DAMAGED.
    """
    data = b"".join(_value(parts, name, part) for part in range(_count(parts, name)))
    try:
        with pa.ipc.open_stream(data) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowInvalid, OSError) as error:
        raise StateError("SEGMENT_DAMAGED", f"segment {name} is not Arrow data: {error}") from error
    if batch.num_rows != n_rows:
        raise StateError(
            "SEGMENT_DAMAGED", f"segment {name} must hold {n_rows} tuples; it holds {batch.num_rows}"
        )
    return batch


def remove_block(parts: PartMap, name: str) -> None:
    """Remove a stored block from the state store."""
    for part in range(_count(parts, name)):
        parts.removeKey((name, part))
    parts.removeKey((name, -1))


def _count(parts: PartMap, name: str) -> int:
    record = _value(parts, name, -1)
    try:
        return int(json.loads(record)["parts"])
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            "SEGMENT_DAMAGED", f"segment {name} must say its number of parts; it says {record!r:.80}"
        ) from error


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


def save(folder: Path, run: Run, plan: IndexPlan) -> None:
    """Write a run under a temporary name and rename it, so that readers see either all of it or nothing.

    If the disk is full, the run is not cached; the state store still holds its data.
    """
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.mkdir(parents=True, mode=0o700)
        widths = {"intervals": run.widths, "row": run.row_bytes.widest}
        layout = {b"widths": json.dumps(widths).encode(), b"index": _describe_layout(plan)}
        schema = run.payload.schema.with_metadata(layout)
        with (
            pa.OSFile(str(temporary / "payload.arrow"), "wb") as file,
            pa.ipc.new_file(file, schema) as writer,
        ):
            writer.write_batch(run.payload)
        for name in ("rows", "edges", "offsets"):
            np.save(temporary / f"{name}.npy", getattr(run, name))
        temporary.rename(folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)


def _describe_layout(plan: IndexPlan) -> bytes:
    """Describe the index of a run and the columns of its key rows.

    A restarted query may use another index, or write its condition in another order.
    """
    side = plan.condition.sides[plan.stored]
    return repr((plan.index, plan.access, plan.widths, side.time, side.keys)).encode()


def load(folder: Path, plan: IndexPlan) -> Run:
    """Map a run that ``save`` wrote for the same index, and mark its folder as used now."""
    os.utime(folder)
    with pa.ipc.open_file(pa.memory_map(str(folder / "payload.arrow"))) as reader:
        layout = reader.schema.metadata
        if layout[b"index"] != _describe_layout(plan):
            raise ValueError(f"{folder} is arranged for another index")
        widths = json.loads(layout[b"widths"])
        intervals, widest = tuple(widths["intervals"]), int(widths["row"])
        payload = reader.get_batch(0)

    def array(name: str) -> Int64s:
        # Kernels are compiled for writable arrays, so the mapping is copy-on-write; no kernel writes to it.
        mapped = np.load(folder / f"{name}.npy", mmap_mode="c")
        return np.asarray(mapped).view(np.ndarray)

    row_bytes = RowBytes(payload, widest)
    return Run(payload, array("rows"), array("edges"), array("offsets"), intervals, row_bytes)
