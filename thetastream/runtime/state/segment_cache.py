"""The cached file of a segment: sorted payload, key rows and directory, as the join reads them.

    file = header (JSON), arrays and payload (Arrow IPC), as words of 8 bytes in rows of ``COLUMNS``; seal
    seal = digest of (format, name of the file, number of words, sum of each row, sum of each column)

Small files are read, and kept in memory until newer ones have replaced them. Large files are mapped. The
header names the segment, so that a file under a wrong name is not read. Each part begins at a multiple of 64.
The first reader of each process checks the seal. A segment never changes, so a process that has checked its
file once does not check it again. Files that no worker has read for an hour are removed.
"""

import contextlib
import json
import mmap
import os
import shutil
import struct
import tempfile
import time
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thetastream.core.blocks import RowFacts
from thetastream.core.private_folder import make_private
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run

MAPPED_BYTES = 1 << 18
"""Files of at least this size are mapped. Mapping a smaller file takes longer than reading it."""
_ARRAYS = ("rows", "edges", "offsets", "zones")
_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
KEPT_BYTES = 1 << 26
"""The largest size of all runs that a process keeps."""
_SEAL = struct.Struct("<Q")

WORD = 8
_MOST_CHECKED = 1 << 14
"""The largest number of files that a process remembers as checked."""

COLUMNS = 512
"""Words in a row. A row has 4,096 bytes, as a page of memory has."""

FORMAT = 2
"""The format of the seal. A file with a seal of another format does not fit, so it is rebuilt."""
STALE_S = 3600
"""A file that no worker has read for this many seconds is removed."""
SWEEP_EVERY_S = 600
"""Seconds between two sweeps on one host."""


class KeptRuns:
    """Runs by the path of their file and by the layout of their index.

    The run that was used least recently is dropped first. Identifiers of segments are unique and segments
    never change, so a kept run is never wrong, whatever task of whatever query the process runs.
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[Path, tuple[str, Run]] = OrderedDict()
        self._sizes: dict[Path, int] = {}
        """The bytes of each run when it was used last. Probes let runs grow."""
        self._nbytes = 0

    def get(self, path: Path, layout: str) -> Run | None:
        found = self._runs.get(path)
        if found is None or found[0] != layout:
            return None
        self.put(path, layout, found[1])
        return found[1]

    def put(self, path: Path, layout: str, run: Run) -> None:
        self.pop(path)
        self._runs[path] = layout, run
        self._sizes[path] = run.nbytes
        self._nbytes += self._sizes[path]
        while self._nbytes > KEPT_BYTES:
            self.pop(next(iter(self._runs)))

    def pop(self, path: Path) -> None:
        if self._runs.pop(path, None) is not None:
            self._nbytes -= self._sizes.pop(path)

    def clear(self) -> None:
        self._runs.clear()
        self._sizes.clear()
        self._nbytes = 0


_KEPT = KeptRuns()


class CheckedFiles:
    """The files that this process has checked, by path and inode; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Path, int] = OrderedDict()

    def check(self, path: Path, data: memoryview) -> memoryview:
        """Return the content of a file before its seal.

        Raises
        ------
        ValueError
            If the content does not fit the seal.
        """
        inode = os.stat(path).st_ino
        if self._known.get(path) == inode:
            return data[: -_SEAL.size]
        content = _check_seal(path, data)
        self._known[path] = inode
        if len(self._known) > _MOST_CHECKED:
            self._known.popitem(last=False)
        return content

    def forget(self, path: Path) -> None:
        """Forget a file that is removed."""
        self._known.pop(path, None)


def _check_seal(path: Path, data: memoryview) -> memoryview:
    """Return the content of a file before its seal.

    Raises
    ------
    ValueError
        If the content does not fit the seal.
    """
    content = data[: -_SEAL.size]
    is_whole = len(content) > 0 and len(content) % WORD == 0
    if not is_whole or compute_seal(path.name, content) != _SEAL.unpack(data[-_SEAL.size :])[0]:
        raise ValueError(f"the content of {path} does not fit its seal")
    return content


_CHECKED = CheckedFiles()
_WARNED: set[Path] = set()
"""The folders of which ``warn_of_cache`` has warned."""


def save(path: Path, run: Run, plan: IndexPlan) -> None:
    """Write a run under a temporary name and rename it, so that readers see either all of it or nothing.

    If the disk is full, the run is not cached; the state store still holds its data.
    """
    layout = describe_layout(plan)
    _keep(path, layout, run)
    shapes = [getattr(run, name).shape for name in _ARRAYS]
    header: dict[str, Any] = {"segment": path.name, "layout": layout, "shapes": shapes}
    header |= {"widths": run.widths, "widest": run.facts.widest, "is_cut_by_time": run.is_cut_by_time}
    header["zoned"] = run.zoned
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
    except OSError as error:
        remove(temporary)
        warn_of_cache(path.parent, error)


def warn_of_cache(root: Path, error: OSError) -> None:
    """Warn once in a process that a folder takes no segments."""
    if root in _WARNED:
        return
    _WARNED.add(root)
    what = f"the cache folder {root} takes no files ({error}). Results stay exact, and the query goes on"
    why = "segments and tables are read from where they are kept instead, which takes longer"
    hint = "make room there, or name another folder (cache_folder=)"
    warnings.warn(f"{what}: {why}; {hint}", UserWarning, stacklevel=4)


def load(path: Path, plan: IndexPlan) -> Run:
    """Read or map a run that ``save`` wrote for the same index, and mark its file as used now.

    Raises
    ------
    OSError, EOFError, ValueError, KeyError, TypeError, struct.error, pyarrow.ArrowException
        If the file is missing, damaged, or arranged for another index.
    """
    layout = describe_layout(plan)
    kept = _KEPT.get(path, layout)
    if kept is not None:
        return kept
    os.utime(path)
    run = _decode(path, _CHECKED.check(path, _read(path)), layout)
    _keep(path, layout, run)
    return run


def read_copy(path: Path, data: bytes, plan: IndexPlan) -> Run:
    """Read a run from the bytes of its file, on a host whose disk has no room for the file.

    Raises
    ------
    EOFError, ValueError, KeyError, TypeError, struct.error, pyarrow.ArrowException
        If they are damaged, or arranged for another index.
    """
    content = _check_seal(path, memoryview(bytearray(data)))
    return _decode(path, content, describe_layout(plan))


def _decode(path: Path, data: memoryview, layout: str) -> Run:
    """Read a run from the content of its file."""
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
    rows, edges, offsets, zones = arrays
    facts = RowFacts(payload, int(header["widest"]))
    return Run(
        payload,
        rows,
        edges,
        offsets,
        tuple(header["widths"]),
        facts,
        header["is_cut_by_time"],
        tuple(header["zoned"]),
        zones,
    )


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


def describe_layout(plan: IndexPlan) -> str:
    """Describe the index of a run and the columns of its key rows.

    A restarted query may use another index, or write its condition in another order.
    """
    side = plan.condition.sides[plan.stored]
    return repr((plan.index, plan.access, plan.widths, plan.zoned, side.time, side.keys))


def seal_file(path: Path, name: str) -> None:
    """Append the seal to a file whose length is a multiple of ``WORD``, and which gets this name."""
    seal = compute_seal(name, np.memmap(path, np.uint64, "r"))
    with path.open("ab") as file:
        file.write(_SEAL.pack(seal))


def compute_seal(name: str, data: memoryview | npt.NDArray[np.uint64]) -> int:
    """Compute the seal of a file with this name. The length of ``data`` is a multiple of ``WORD``.

    The sums change if a single bit changes, or if a page is replaced by zeros. The digest of the sums depends
    on their order. So it also changes if pages, rows or columns are exchanged, or if the file is under
    another name. To add the words twice costs a quarter of a CRC: 0.05 ms per MB.

    >>> one, two = bytes([1] + 7 * [0]), bytes([2] + 7 * [0])
    >>> compute_seal("a", memoryview(one + two)) == compute_seal("a", memoryview(two + one))
    False
    """
    words = np.frombuffer(data, np.uint64)
    whole = len(words) // COLUMNS * COLUMNS
    grid = words[:whole].reshape(-1, COLUMNS)
    digest = blake2b(f"{FORMAT} {name} {len(words)}".encode(), digest_size=WORD)
    for sums in (grid.sum(axis=1, dtype=np.uint64), grid.sum(axis=0, dtype=np.uint64), words[whole:]):
        digest.update(sums.tobytes())
    return int(_SEAL.unpack(digest.digest())[0])


def choose_cache_root(folder: str | None = None) -> Path:
    """Choose the folder on this host for cached segments: in ``folder``, or else in Spark's local directory.

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
    """Remove cached segments that no worker has read for an hour, at most once in ten minutes per host.

    Such segments remain from attempts that failed, units that moved to another host and queries that ended.
    If a segment is still live, it is rebuilt when it is needed again.

    Raises
    ------
    SessionError
        UNSAFE_FOLDER if another user could write into the folder.
    """
    with contextlib.suppress(OSError):
        _claim(root)
    now = time.time()
    marker = root / ".swept"
    with contextlib.suppress(OSError):
        if now - marker.stat().st_mtime < SWEEP_EVERY_S:
            return
    with contextlib.suppress(OSError):
        marker.touch()
        for path in list_stale(root):
            remove(path)


def list_stale(root: Path) -> Iterator[Path]:
    """Yield the files that no worker has read for an hour, and the folders of earlier boots of this host."""
    now = time.time()
    earlier_boots = root.parent.glob(f"{_family()}*") if root.parent.is_dir() else ()
    for entry in (*(root.iterdir() if root.is_dir() else ()), *earlier_boots):
        with contextlib.suppress(OSError):
            if entry != root and now - entry.lstat().st_mtime > STALE_S:
                yield entry


@cache
def _claim(root: Path) -> None:
    """Make the folder, or check that it is this user's; once in a process."""
    make_private(root)


def remove(path: Path) -> None:
    """Remove a cached file or folder, if it exists. The target of a link remains."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
