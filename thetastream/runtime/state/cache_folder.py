"""The folder on a host that caches segments, and its sweep."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from thetastream.core.folder import make_private

STALE_S = 3600
"""A file that no worker has read for this many seconds is removed."""
SWEEP_EVERY_S = 600
"""Seconds between two sweeps on one host."""


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
