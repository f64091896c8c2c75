"""The cached file of a segment: sorted payload, key rows and directory, as the join reads them.

Small files are read, and kept in memory until newer ones have replaced them. Large files are mapped. A file
has a header (JSON), the arrays, and the payload as Arrow IPC. The header names the segment, so that a file
under a wrong name is not read. Each part begins at a multiple of 64. A seal at the end finds flipped bits and
exchanged pages.
"""

import json
import mmap
import os
import struct
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from thetastream.core.row_bytes import RowBytes
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run
from thetastream.spark.state.cache_folder import remove
from thetastream.spark.state.kept_runs import KeptRuns
from thetastream.spark.state.seal import WORD, CheckedFiles, seal_file

MAPPED_BYTES = 1 << 18
"""Files of at least this size are mapped. Mapping a smaller file takes longer than reading it."""
_ARRAYS = ("rows", "edges", "offsets")
_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
_KEPT = KeptRuns()
_CHECKED = CheckedFiles()


def save(path: Path, run: Run, plan: IndexPlan) -> None:
    """Write a run under a temporary name and rename it, so that readers see either all of it or nothing.

    If the disk is full, the run is not cached; the state store still holds its data.
    """
    layout = _describe_layout(plan)
    _keep(path, layout, run)
    shapes = [getattr(run, name).shape for name in _ARRAYS]
    header: dict[str, Any] = {"segment": path.name, "layout": layout, "shapes": shapes}
    header |= {"widths": run.widths, "widest": run.row_bytes.widest, "is_cut_by_time": run.is_cut_by_time}
    text = json.dumps(header).encode()
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with pa.OSFile(str(temporary), "wb") as file:
            file.write(_LENGTH.pack(len(text)) + text)
            for name in _ARRAYS:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                file.write(np.ascontiguousarray(getattr(run, name)))
            file.write(bytes(-file.tell() % _ALIGNMENT))
            with pa.ipc.new_stream(file, run.payload.schema) as writer:
                writer.write_batch(run.payload)
            file.write(bytes(-file.tell() % WORD))
        seal_file(temporary, path.name)
        temporary.rename(path)
    except OSError:
        remove(temporary)


def load(path: Path, plan: IndexPlan) -> Run:
    """Read or map a run that ``save`` wrote for the same index, and mark its file as used now.

    Raises
    ------
    OSError, EOFError, ValueError, KeyError, TypeError, struct.error, pyarrow.ArrowException
        If the file is missing, damaged, or arranged for another index.
    """
    layout = _describe_layout(plan)
    kept = _KEPT.get(path, layout)
    if kept is not None:
        return kept
    os.utime(path)
    data = _CHECKED.check(path, _read(path))
    (length,) = _LENGTH.unpack(data[: _LENGTH.size])
    end = _LENGTH.size + int(length)
    header = json.loads(bytes(data[_LENGTH.size : end]))
    if header["layout"] != layout or header["segment"] != path.name:
        raise ValueError(f"{path} holds another segment, or is arranged for another index")
    arrays = []
    for shape in header["shapes"]:
        start = end + -end % _ALIGNMENT
        end = start + 8 * int(np.prod(shape))
        arrays.append(np.frombuffer(data[start:end], np.int64).reshape(shape))
    start = end + -end % _ALIGNMENT
    with pa.ipc.open_stream(pa.py_buffer(data[start:])) as reader:
        payload = next(iter(reader), None)
    if payload is None:
        raise EOFError(f"{path} ends behind the schema of the payload")
    rows, edges, offsets = arrays
    row_bytes = RowBytes(payload, int(header["widest"]))
    run = Run(payload, rows, edges, offsets, tuple(header["widths"]), row_bytes, header["is_cut_by_time"])
    _keep(path, layout, run)
    return run


def discard(path: Path) -> None:
    """Remove the cached file of a segment."""
    _KEPT.pop(path)
    _CHECKED.forget(path)
    remove(path)


def _keep(path: Path, layout: str, run: Run) -> None:
    if run.nbytes < MAPPED_BYTES:
        _KEPT.put(path, layout, run)


def _read(path: Path) -> memoryview:
    """Return the bytes of a file. Kernels are compiled for writable arrays, but no kernel writes to them."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size >= MAPPED_BYTES:
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))
        return memoryview(bytearray(file.read()))


def _describe_layout(plan: IndexPlan) -> str:
    """Describe the index of a run and the columns of its key rows.

    A restarted query may use another index, or write its condition in another order.
    """
    side = plan.condition.sides[plan.stored]
    return repr((plan.index, plan.access, plan.widths, side.time, side.keys))
