"""The folder of staged tables, which all workers reach: which runs are there, and which are needed.

    runs/<digest>-<name>      a run of the index, as the cached file of a segment
    staged/<table>/           the versions of a table
    epochs/<join>/            the versions that the epochs of a join read

A version of a table is the set of its runs (``thetastream.runtime.table_versions``). Only workers read and
write these files: on Spark Connect, the client may be on another machine.
"""

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass

from pyarrow import fs

from thetastream.core.folder import Folder, is_uri
from thetastream.runtime.host_runs import CACHE_BYTES, PARTITIONS_PER_HOST, HostRuns
from thetastream.runtime.table_versions import (
    EpochVersions,
    SharedFolder,
    TableVersions,
    Version,
)

KEPT_S = 24 * 3600
"""A run that nobody needs is removed after this many seconds."""
KEPT_UNFINISHED_S = 30 * KEPT_S
"""A query that stays stopped for longer must not continue an epoch that it has not finished."""
FOLDER = "tables"
"""The name of the folder of staged tables."""


@dataclass(frozen=True)
class TableFolder:
    """A folder of staged tables, which all workers reach. Picklable.

    If it is no path of this host but a URI, each host copies the runs that it reads into its cache.
    """

    root: str
    cache_folder: str | None = None
    """The folder on each host for copies of runs; None means Spark's local directory."""
    cache_bytes: int = CACHE_BYTES
    """The most bytes of copies on each host."""
    asked: int | None = None
    """The number of partitions that the user asked for; None if it follows from the size of the table."""

    @property
    def host(self) -> HostRuns:
        """The files of runs on this host."""
        return HostRuns(self.open_folder("runs"), self.has_copies, self.cache_folder, self.cache_bytes)

    @property
    def has_copies(self) -> bool:
        """Whether hosts map copies of runs."""
        return is_uri(self.root)

    def count_partitions(self, nbytes: int, n_tasks: int) -> int:
        """Count the partitions in which tuples are looked up in a table of so many bytes.

        ``n_tasks`` is the number of tasks of an exchange. The result is 1 if a host has room for the table,
        unless the user asked for another number.

        >>> folder = TableFolder("hdfs://names/shared", cache_bytes=1000)
        >>> [folder.count_partitions(nbytes, 3) for nbytes in (1000, 1001, 4000)]
        [1, 9, 32]
        """
        if self.asked is not None:
            return self.asked
        if not self.has_copies or nbytes <= self.cache_bytes:
            return 1
        return max(n_tasks, -(-PARTITIONS_PER_HOST * nbytes // self.cache_bytes))

    def open_versions(self, name: str) -> TableVersions:
        """Open the versions of a table."""
        return TableVersions(self.open_folder(f"staged/{name}"))

    def has_runs(self, version: Version) -> bool:
        """Whether all runs of a version are there. They are marked as used, so that no sweep removes them."""
        runs = self.open_folder("runs")
        if runs.is_object_store and version.runs:
            return set(version.runs) <= runs.list_files().keys()
        return all(mark_used(runs, name) for name in version.runs)

    def drop_replaced(self, name: str, keep: int) -> None:
        """Remove versions of a table that newer ones have replaced, and their runs.

        The newest ``keep`` versions stay, and so do their runs, and those that an epoch reads which Spark may
        run again.
        """
        versions = self.open_versions(name)
        replaced = versions.list_replaced(keep, time.time())
        for version in replaced:
            versions.remove(version)
        if replaced:
            runs = {run for version in replaced for run in version.runs}
            self.remove_runs(runs - versions.list_runs() - self._list_repeated())

    def remove_runs(self, names: Collection[str]) -> None:
        """Remove runs. Another program may remove them too."""
        runs = self.open_folder("runs")
        for name in names:
            with contextlib.suppress(OSError):
                runs.remove(name)

    def sweep(self) -> None:
        """Remove runs that are older than a day and that nobody needs.

        Epochs need runs that Spark may run again, if they began in the last ``KEPT_UNFINISHED_S``. Versions
        of tables need theirs until their program has not compared them with their source for a day.
        """
        needed, versions = self._list_repeated(), self.open_folder("staged")
        for table in versions.list_files():
            changed_ns = [times[0] for times in versions.list_files(table).values()]
            if time.time() - max(changed_ns, default=0) / 1e9 <= KEPT_S:
                needed |= self.open_versions(table).list_runs()
        files = self.open_folder("runs").list_files()
        old = {name for name, (last_ns, _) in files.items() if time.time() - last_ns / 1e9 > KEPT_S}
        self.remove_runs(old - needed)

    def _list_repeated(self) -> set[str]:
        """List the runs that epochs of all queries read which Spark may run again."""
        joins = (EpochVersions(self.open_folder(f"epochs/{name}")) for name in self.list_joins())
        return set().union(*(join.list_repeated(KEPT_UNFINISHED_S) for join in joins))

    def list_joins(self) -> list[str]:
        """List the folders of epochs: the joins of all queries."""
        return list(self.open_folder("epochs").list_files())

    def open_folder(self, name: str) -> SharedFolder:
        """Open a folder inside the folder of tables, and make it if it is not there."""
        folder = SharedFolder(self.root, f"{FOLDER}/{name}")
        if not folder.is_object_store:
            folder.make(is_private=True)
        return folder


def mark_used(runs: Folder, name: str) -> bool:
    """Mark a run as used now, where the file system can. Return whether it is there."""
    is_there = runs.exists(name)
    if is_there and isinstance(runs.filesystem, fs.LocalFileSystem):
        os.utime(runs.locate(name))
    return is_there
