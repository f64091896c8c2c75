"""The folder on a host that caches segments, and its sweep."""

import contextlib
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

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
            if now - entry.stat().st_mtime > STALE_S:
                remove(Path(entry.path))


def remove(path: Path) -> None:
    """Remove a cached file or folder, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
