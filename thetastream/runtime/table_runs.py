"""The staged rows of tables: files of runs in a folder that all workers reach.

    runs/<digest>-<name>      a run of the index, as the cached file of a segment
    epochs/<join>/of-<run>    which table the join reads while the query runs once

A version of a table is the set of its runs (``thetastream.runtime.table_versions``). A run has the digest of
its rows in its name, so a version takes the runs of the one before whose rows have not changed. Only workers
read and write these files: on Spark Connect, the client may be on another machine.

Two joins of a query that are alike have one name. They share the version that is written down, so they must
read one table.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import fs

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.columns import HASH
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri
from thetastream.core.keys import Int64s
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.run import Run, build
from thetastream.engine.table_partitions import find_bounds
from thetastream.runtime.host_runs import CACHE_BYTES, PARTITIONS_PER_HOST, HostRuns
from thetastream.runtime.state import segment_cache
from thetastream.runtime.table_versions import (
    EpochVersion,
    EpochVersions,
    SharedFolder,
    TableVersions,
    Version,
)
from thetastream.runtime.task_facts import ReadTask, TaskFacts

Batches = Iterable[pa.RecordBatch]
RUN_ROWS = 1 << 21
RUN_BYTES = 1 << 27
"""The largest run."""
KEPT_S = 24 * 3600
"""A run that nobody needs is removed after this many seconds."""
KEPT_UNFINISHED_S = 30 * KEPT_S
"""A query that stays stopped for longer must not continue an epoch that it has not finished."""
FOLDER = "tables"
"""The name of the folder of staged tables."""
STAGED = pa.schema(
    [
        ("run", pa.string()),
        ("n_rows", pa.int64()),
        ("nbytes", pa.int64()),
        ("content", pa.int64()),
        ("bounds", pa.list_(pa.list_(pa.int64()))),
    ]
)
"""What a task returns for each run of its rows. ``content`` is the sum of the hashes of the rows, and
``bounds`` has the least and the greatest value of each column of the key rows."""
STAGED_COLUMNS = "run string, n_rows bigint, nbytes bigint, content bigint, bounds array<array<bigint>>"
"""The same as Spark writes it."""


@dataclass(frozen=True)
class StagedTable:
    """A table that a join reads."""

    version: Version
    """The version when the DataFrame was built."""
    table: str
    """What tells the table from others of the same driver, also if their columns are the same."""
    versions: str | None = None
    """The name under which later versions are staged; None if there are none."""
    is_followed: bool = False
    """Whether the program stages later versions by itself (``every=``)."""
    max_age_s: float | None = None
    """The query ends if a new epoch would read rows that were those of the source so long ago."""
    n_partitions: int = 1
    """Tuples are divided into so many partitions before they are looked up. It is 1 if a host has room for a
    copy of the whole table."""


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

    @property
    def host(self) -> HostRuns:
        """The files of runs on this host."""
        return HostRuns(self._open_folder("runs"), self.has_copies, self.cache_folder, self.cache_bytes)

    @property
    def has_copies(self) -> bool:
        """Whether hosts map copies of runs."""
        return is_uri(self.root)

    def count_partitions(self, nbytes: int, n_tasks: int) -> int:
        """Count the partitions in which tuples are looked up in a table of so many bytes.

        ``n_tasks`` is the number of tasks of an exchange. The result is 1 if a host has room for the table.

        >>> folder = TableFolder("hdfs://names/shared", cache_bytes=1000)
        >>> [folder.count_partitions(nbytes, 3) for nbytes in (1000, 1001, 4000)]
        [1, 9, 32]
        """
        if not self.has_copies or nbytes <= self.cache_bytes:
            return 1
        return max(n_tasks, -(-PARTITIONS_PER_HOST * nbytes // self.cache_bytes))

    def make_staging_step(
        self, plan: IndexPlan, read_task: ReadTask, before: Collection[str] = ()
    ) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Make the step that writes rows of a table as runs, and returns a row for each run.

        Rows may have a hash in the column ``HASH``. ``before`` has the runs of the version before, which are
        not written again if they have the same rows.
        """
        known = {name.partition("-")[0]: name for name in before if "-" in name}

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
            self.host.make_folder()
            if read_task().partition == 0:
                self.sweep()
            for block in gather(map(drop_fillers, batches), RUN_ROWS, RUN_BYTES, RUN_BYTES):
                yield self._stage_run(plan, block, known)
                del block
            # Arrow keeps the memory of the largest run for later, and Spark keeps the worker.
            pa.default_memory_pool().release_unused()

        return stage

    def _stage_run(self, plan: IndexPlan, block: pa.RecordBatch, known: Mapping[str, str]) -> pa.RecordBatch:
        """Find the run of some rows of a table, or write it, and describe it in a row.

        ``known`` has runs by the digest of their rows.
        """
        rows, hashes = _cut_hashes(block)
        name, content = uuid.uuid4().hex, None
        if hashes is not None:
            digest = blake2b(np.sort(hashes).tobytes(), digest_size=16).hexdigest()
            name, content = f"{digest}-{name[:8]}", int(hashes.sum())
            name = known.get(digest, name)
        host, keys = self.host, encode_key_rows(plan.stored, plan.condition, rows)
        if not _mark_used(host.shared, name):
            _write_run(host, name, build(plan, rows, keys), plan)
        nbytes = host.shared.filesystem.get_file_info(host.shared.locate(name)).size
        found = {"run": name, "n_rows": rows.num_rows, "nbytes": nbytes, "content": content}
        return pa.RecordBatch.from_pylist([{**found, "bounds": find_bounds(keys)}], schema=STAGED)

    def open_versions(self, name: str) -> TableVersions:
        """Open the versions of a table."""
        return TableVersions(self._open_folder(f"staged/{name}"))

    def list_epochs(self, query: str) -> list[tuple[int, EpochVersion]]:
        """List what the last epochs of a query read, in the order of epochs and aliases."""
        names = [name for name in self._list_joins() if name.startswith(f"{query}-")]
        joins = [EpochVersions(self._open_folder(f"epochs/{name}")) for name in names]
        found = [(epoch, join.read(epoch)) for join in joins for epoch in join.list_epochs()]
        return sorted(found, key=lambda one: (one[0], one[1].alias))

    def choose_version(self, task: TaskFacts, join: str, alias: str, own: StagedTable) -> EpochVersion:
        """Return the version that the epoch of a task reads.

        It is the version that is written down for the epoch. If there is none, the newest version is chosen
        and written down. Outside of a query, and where Spark does not tell the epoch, it is the version of
        the DataFrame.

        Parameters
        ----------
        task : TaskFacts
        join : str
            The name of the join in the query.
        alias : str
            The alias of the table.
        own : StagedTable

        Raises
        ------
        StateError
            TABLES_ALIKE; EPOCH_UNKNOWN if the program follows the table and Spark does not tell the epoch;
            TABLE_STALE; or TABLE_MISSING if a run of the newest version is not there any more. No epoch is
            bound to a version that is not there.
        """
        if task.epoch is None:
            if own.is_followed:
                what = f"Spark does not tell the epoch that reads table {alias!r}, which every= follows"
                hint = "leave every= out, or write with another sink than foreachBatch on Spark Connect"
                raise StateError("EPOCH_UNKNOWN", f"{what}: two tasks could read two versions; {hint}")
            self._refuse_missing(own.version)
            return EpochVersion(alias, own.version, own.version.staged_s)
        folder = self._open_folder(f"epochs/{task.query}-{join}")
        if task.run is not None:
            _compare_tables(folder, task.run, own.table)
        epochs = EpochVersions(folder)
        found = epochs.find(task.epoch)
        if found is None:
            chosen = self._find_newest(alias, own)
            _refuse_stale(chosen, own)
            self._refuse_missing(chosen.version)
            found = epochs.decide(task.epoch, chosen)
        return found

    def _find_newest(self, alias: str, own: StagedTable) -> EpochVersion:
        if own.versions is None:
            return EpochVersion(alias, own.version, own.version.staged_s)
        versions = self.open_versions(own.versions)
        check = versions.read_check()
        version = versions.read_newest() or own.version
        refused = None if check.refused is None else check.refused.condition
        return EpochVersion(alias, version, max(version.staged_s, check.fresh_s), refused)

    def _refuse_missing(self, version: Version) -> None:
        if not self.has_runs(version):
            what = f"staged rows of a table are not in {hide_secrets(self.root)} any more ({version})"
            hint = "make the DataFrame of the join again, which stages the table again"
            raise StateError("TABLE_MISSING", f"{what}; {hint}")

    def has_runs(self, version: Version) -> bool:
        """Whether all runs of a version are there. They are marked as used, so that no sweep removes them."""
        runs = self._open_folder("runs")
        if runs.is_object_store and version.runs:
            return set(version.runs) <= runs.list_files().keys()
        return all(_mark_used(runs, name) for name in version.runs)

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
        runs = self._open_folder("runs")
        for name in names:
            with contextlib.suppress(OSError):
                runs.remove(name)

    def sweep(self) -> None:
        """Remove runs that are older than a day and that nobody needs.

        Epochs need runs that Spark may run again, if they began in the last ``KEPT_UNFINISHED_S``. Versions
        of tables need theirs until their program has not compared them with their source for a day.
        """
        needed, versions = self._list_repeated(), self._open_folder("staged")
        for table in versions.list_files():
            changed_ns = [times[0] for times in versions.list_files(table).values()]
            if time.time() - max(changed_ns, default=0) / 1e9 <= KEPT_S:
                needed |= self.open_versions(table).list_runs()
        files = self._open_folder("runs").list_files()
        old = {name for name, (last_ns, _) in files.items() if time.time() - last_ns / 1e9 > KEPT_S}
        self.remove_runs(old - needed)

    def _list_repeated(self) -> set[str]:
        """List the runs that epochs of all queries read which Spark may run again."""
        joins = (EpochVersions(self._open_folder(f"epochs/{name}")) for name in self._list_joins())
        return set().union(*(join.list_repeated(KEPT_UNFINISHED_S) for join in joins))

    def _list_joins(self) -> list[str]:
        return list(self._open_folder("epochs").list_files())

    def refuse_lost(self, version: Version, error: Exception) -> NoReturn:
        """Raise TABLE_MISSING, because a run of a version cannot be read."""
        what = f"an epoch reads {version} of a table, which is not in {hide_secrets(self.root)} any more"
        hint = "restore the folder, or start the query with a new checkpoint"
        raise StateError("TABLE_MISSING", f"{what} ({error}); {hint}") from error

    def _open_folder(self, name: str) -> SharedFolder:
        folder = SharedFolder(self.root, f"{FOLDER}/{name}")
        if not folder.is_object_store:
            folder.make(is_private=True)
        return folder


def _mark_used(runs: Folder, name: str) -> bool:
    """Mark a run as used now, where the file system can. Return whether it is there."""
    is_there = runs.exists(name)
    if is_there and isinstance(runs.filesystem, fs.LocalFileSystem):
        os.utime(runs.locate(name))
    return is_there


def _write_run(host: HostRuns, name: str, run: Run, plan: IndexPlan) -> None:
    """Write a run into the folder of this host, and from there into the folder that all hosts share."""
    path = host.folder / name
    segment_cache.save(path, run, plan)
    if not path.exists():
        what = f"the rows of a table must be staged in {path.parent}, and its disk refuses them"
        raise StateError("TABLE_FOLDER", f"{what}; make room there, or name another mailbox=")
    if host.has_copies:
        host.shared.write(name, path.read_bytes())
        host.make_room(0)


def _cut_hashes(block: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64s | None]:
    """Cut the column of hashes off; return the rows, and their hashes."""
    if HASH not in block.schema.names:
        return block, None
    hashes = block.column(HASH).to_numpy(zero_copy_only=False)
    return block.drop_columns([HASH]), hashes.astype(np.int64)


def _refuse_stale(chosen: EpochVersion, own: StagedTable) -> None:
    """Refuse a version that was that of the source too long ago.

    Raises
    ------
    StateError
        TABLE_STALE.
    """
    age_s = time.time() - chosen.fresh_s
    if own.max_age_s is None or age_s <= own.max_age_s:
        return
    why = "" if chosen.refused is None else f", and a later one is refused with {chosen.refused}"
    raise StateError(
        "TABLE_STALE",
        f"table {chosen.alias!r} must not be older than max_age ({own.max_age_s:g} s), and {chosen.version}, "
        f"was last compared with its source {age_s:,.0f} s ago{why}; see that the program that follows the "
        "table runs and reaches its source, then start the query again",
    )


def _compare_tables(folder: Folder, run: str, table: str) -> None:
    """Refuse a join of a query that reads another table than an equal join of the query does.

    Both would read the version of one of them.
    """
    name = f"{_OF_RUN}{blake2b(run.encode(), digest_size=8).hexdigest()}"
    if folder.write_new(name, table.encode()):
        for old in folder.list_files():
            if old.startswith(_OF_RUN) and old != name:
                with contextlib.suppress(FileNotFoundError):
                    folder.remove(old)
    elif folder.read(name) != table.encode():
        what = "two joins of this query have the same aliases, columns and condition, but different tables"
        hint = "an epoch that runs again could not tell which version each of them has read"
        raise StateError("TABLES_ALIKE", f"{what}; {hint}: give one of the tables another alias")


_OF_RUN = "of-"
