"""The runs of tables on one host: the files that its workers map.

    a folder that is a path    runs are mapped where they lie
    a folder that is a URI     one worker copies a run when it is first read, and the others wait for it

Copies that were used least recently make room for new ones. A process that has mapped a file keeps its rows,
also when the file is removed.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from thetastream.core.folder import Folder
from thetastream.core.private_folder import make_private
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import choose_cache_root

CACHE_BYTES = 20_000_000_000
"""By default, a host keeps copies of so many bytes."""
PARTITIONS_PER_HOST = 8
"""A host has room for the runs of so many partitions, because it runs several tasks at once."""


@dataclass(frozen=True)
class HostRuns:
    """The files of runs on this host."""

    shared: Folder
    """The folder of runs that all hosts reach."""
    has_copies: bool
    """Whether this host maps copies, because the folder of tables is no path."""
    cache_folder: str | None
    """The folder on each host for copies; None means Spark's local directory."""
    cache_bytes: int
    """The most bytes of copies."""

    @property
    def folder(self) -> Path:
        """The folder in which this host maps runs."""
        if self.has_copies:
            return choose_cache_root(self.cache_folder) / "tables"
        return Path(self.shared.locate("")).absolute()

    def make_folder(self) -> None:
        """Make the folder, or check that only this user may change it.

        Raises
        ------
        SessionError
            UNSAFE_FOLDER.
        """
        if self.has_copies:
            make_private(self.folder.parent)
        make_private(self.folder)

    def load(self, name: str, plan: IndexPlan) -> Run:
        """Map a run, or read it if this host has no room for a copy.

        Raises
        ------
        OSError, EOFError, ValueError, KeyError, TypeError, pyarrow.ArrowException
            If the run is not there any more, is damaged, or is arranged for another index.
        """
        try:
            return segment_cache.load(self.fetch(name), plan)
        except OSError as error:
            data = self.shared.read(name)
            # Another worker may have removed the copy, to make room for its own.
            if not isinstance(error, FileNotFoundError):
                segment_cache.warn_of_cache(self.folder, error)
            return segment_cache.read_copy(self.folder / name, data, plan)

    def mark_used(self, name: str) -> None:
        """Mark the copy of a run as used now."""
        if self.has_copies:
            for path in (self.folder / name, self.folder):
                with contextlib.suppress(FileNotFoundError):
                    os.utime(path)

    def fetch(self, name: str) -> Path:
        """Copy a run to this host, unless it is there, and return its path."""
        path = self.folder / name
        if self.has_copies and not path.exists():
            self.make_folder()
            with _lock(path):
                if not path.exists():
                    data = self.shared.read(name)
                    self.make_room(len(data))
                    Folder(str(self.folder), "").write(name, data)
        return path

    def make_room(self, nbytes: int) -> None:
        """Remove the copies that were used least recently, until there is room for so many bytes more."""
        if not self.has_copies:
            return
        copies = sorted(self._list_copies())
        total = nbytes + sum(size for _, size, _ in copies)
        for _, size, path in copies:
            if total <= self.cache_bytes:
                return
            segment_cache.discard(path)
            segment_cache.remove(_name_lock(path))
            total -= size

    def _list_copies(self) -> Iterator[tuple[int, int, Path]]:
        """List when each copy was last used, its bytes, and its path."""
        for path in self.folder.iterdir():
            if not path.name.startswith("."):
                with contextlib.suppress(OSError):  # another worker may remove it
                    found = path.stat()
                    yield found.st_mtime_ns, found.st_size, path


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other worker of this host holds the lock of a file."""
    with _name_lock(path).open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name_lock(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
