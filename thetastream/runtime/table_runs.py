"""The staged rows of tables: files of runs in a folder, and the step that looks tuples up in them.

    runs/<digest>-<name>      a run of the index, as the cached file of a segment
    epochs/<join>/of-<run>    which table the join reads while the query runs once

A version of a table is the set of its runs (``thetastream.runtime.table_versions``). A run has the digest of
its rows in its name, so a version takes the runs of the one before whose rows have not changed. Only workers
read and write these files: on Spark Connect, the client may be on another machine.

Two joins of a query that are alike have one name. They share the version that is written down, so they must
read one table.
"""

import contextlib
import fcntl
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import fs

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.columns import DECIDED, HASH
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri, make_private
from thetastream.core.keys import Int64s
from thetastream.engine.counters import Counters
from thetastream.engine.decided_lookup import LookupDecider
from thetastream.engine.lookup import PROBES_AT_ONCE, Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import Run, build
from thetastream.lowering.physical import SidePlan
from thetastream.runtime.emit import build_counters_batch, count_emitted, gather_batches
from thetastream.runtime.flow import Output
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import choose_cache_root
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
    [("run", pa.string()), ("n_rows", pa.int64()), ("nbytes", pa.int64()), ("content", pa.int64())]
)
"""What a task returns for each run of its rows. ``content`` is the sum of the hashes of the rows."""


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


@dataclass(frozen=True)
class LookupFlow:
    """A planned lookup of a stream in a table."""

    name: str
    """The name of the join in a query. It stays the same when the query starts again."""
    lookup: Lookup
    sides: tuple[SidePlan, SidePlan]
    """How the tuples of the stream, and the rows of the table, become blocks."""
    output: Output
    """The columns of results, and those that the user gets."""
    candidates: Output | None = None
    """The candidate pairs that leave the lookup, if Spark evaluates a part of the condition behind it, and
    tuples are answered."""

    @property
    def table(self) -> SidePlan:
        """How the rows of the table become blocks."""
        return self.sides[self.lookup.side.other]

    @property
    def stream(self) -> SidePlan:
        """How the tuples of the stream become blocks."""
        return self.sides[self.lookup.side]


@dataclass(frozen=True)
class TableFolder:
    """A folder of staged tables, which all workers reach. Picklable.

    If it is no path of this host but a URI, each host copies the runs that it reads into its cache.
    """

    root: str
    cache_folder: str | None = None
    """The folder on each host for copies of runs; None means Spark's local directory."""

    def make_staging_step(
        self, plan: IndexPlan, read_task: ReadTask, before: Collection[str] = ()
    ) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Make the step that writes rows of a table as runs, and returns a row for each run.

        Rows may have a hash in the column ``HASH``. ``before`` has the runs of the version before, which are
        not written again if they have the same rows.
        """
        known = {name.partition("-")[0]: name for name in before if "-" in name}

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
            make_private(self._folder_of_host)
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
        runs = self._open_folder("runs")
        if not _mark_used(runs, name):
            self._write_run(plan, rows, runs, name)
        nbytes = runs.filesystem.get_file_info(runs.locate(name)).size
        found = {"run": name, "n_rows": rows.num_rows, "nbytes": nbytes, "content": content}
        return pa.RecordBatch.from_pylist([found], schema=STAGED)

    def _write_run(self, plan: IndexPlan, rows: pa.RecordBatch, runs: Folder, name: str) -> None:
        path = self._folder_of_host / name
        segment_cache.save(path, build(plan, rows), plan)
        if not path.exists():
            what = f"the rows of a table must be staged in {path.parent}, and its disk refuses them"
            raise StateError("TABLE_FOLDER", f"{what}; make room there, or name another mailbox=")
        if is_uri(self.root):
            runs.write(name, path.read_bytes())

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

    def open(
        self, version: Version, plan: IndexPlan, payload: pa.Schema, opened: Mapping[str, Run] | None = None
    ) -> TableRuns:
        """Map the runs of a version, except those that are open already.

        Raises
        ------
        StateError
            TABLE_MISSING if a run is not there any more, or is damaged.
        """
        known = opened or {}
        try:
            runs = [known.get(name) or self._load(name, plan) for name in version.runs]
            return TableRuns(runs, payload)
        except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            what = f"an epoch reads {version} of a table, which is not in {hide_secrets(self.root)} any more"
            hint = "restore the folder, or start the query with a new checkpoint"
            raise StateError("TABLE_MISSING", f"{what} ({error}); {hint}") from error

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

    @property
    def _folder_of_host(self) -> Path:
        """The folder in which this host maps runs."""
        return choose_cache_root(self.cache_folder) if is_uri(self.root) else Path(self.root, FOLDER, "runs")

    def _load(self, name: str, plan: IndexPlan) -> Run:
        """Map a run on this host, or read it if the disk of this host has no room for a copy."""
        try:
            path = self._fetch(name)
        except OSError as error:
            data = self._open_folder("runs").read(name)
            segment_cache.warn_of_cache(self._folder_of_host, error)
            return segment_cache.read_copy(self._folder_of_host / name, data, plan)
        return segment_cache.load(path, plan)

    def _fetch(self, name: str) -> Path:
        """Copy a run to this host, unless it is there. Other workers of the host wait for the copy."""
        path = self._folder_of_host / name
        if is_uri(self.root) and not path.exists():
            make_private(path.parent)
            with _lock(path):
                if not path.exists():
                    Folder(str(path.parent), "").write(name, self._open_folder("runs").read(name))
        return path

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


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait until no other worker of this host holds the lock of a file."""
    with path.with_name(f".{path.name}.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


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

_OPENED: dict[tuple[tuple[str, ...], str, pa.Schema], tuple[float, TableRuns]] = {}
"""The versions that this process has read last, and when, by their runs, the layout of their index and the
columns of the table. A version never changes."""
_OPEN_S = 60.0
"""A version that nobody has read for so many seconds is closed. It may be large, and its query may have ended
or read a newer one."""


def _open(folder: TableFolder, version: Version, plan: IndexPlan, payload: pa.Schema) -> TableRuns:
    layout, now = segment_cache.describe_layout(plan), time.monotonic()
    key = version.runs, layout, payload
    for other in [one for one, (read_s, _) in _OPENED.items() if one != key and now - read_s > _OPEN_S]:
        del _OPENED[other]
    if key not in _OPENED:
        opened = {
            name: run
            for (names, *others), (_, runs) in _OPENED.items()
            if others == [layout, payload]
            for name, run in zip(names, runs.runs, strict=True)
        }
        _OPENED[key] = now, folder.open(version, plan, payload, opened)
    runs = _OPENED[key][1]
    _OPENED[key] = now, runs
    return runs


@dataclass
class LookupCounters(Counters):
    """The work of a task that looks tuples up. Nothing crosses an exchange, and nothing is stored."""

    tables: dict[str, dict[str, object]] = field(default_factory=dict)
    """By alias, the version of the table that the task read."""

    def read_table(self, chosen: EpochVersion) -> None:
        """Count a table."""
        self.tables[chosen.alias] = {
            "version": chosen.version.number,
            "rows": chosen.version.n_rows,
            "bytes": chosen.version.nbytes,
            "staged_s": chosen.version.staged_s,
            "age_s": round(max(0.0, time.time() - chosen.fresh_s), 3),
            "refused": chosen.refused,
        }


def make_lookup_step(
    flow: LookupFlow,
    folder: TableFolder,
    own: StagedTable,
    payload: pa.Schema,
    results: pa.Schema,
    *,
    read_task: ReadTask,
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that looks tuples of a stream up in a table.

    The last row that a task returns has its counters.

    Parameters
    ----------
    flow : LookupFlow
    folder : TableFolder
    own : StagedTable
        The table as it was when the query was built.
    payload, results : pyarrow.Schema
        The columns of the table, and those of results, of which the last one has counters.
    read_task : callable
        Reads the facts of the Spark task that runs the step.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        tuples = gather(map(drop_fillers, batches), PROBES_AT_ONCE)
        first = next(tuples, None)
        if first is None:
            return
        task, counters = read_task(), LookupCounters()
        chosen = folder.choose_version(task, flow.name, flow.table.alias, own)
        counters.read_table(chosen)
        runs = _open(folder, chosen.version, flow.lookup.plan, payload)
        for batch in chain([first], tuples):
            pieces = count_emitted(flow.lookup.answer(batch, runs, counters.probed), counters)
            counters.probed += batch.num_rows
            for found in gather_batches(pieces, results):
                has_tuples = flow.candidates is not None
                counters.matched += found.column(DECIDED).null_count if has_tuples else found.num_rows
                yield found
        yield build_counters_batch(task.partition, counters, results)

    return run


def make_deciding_step(flow: LookupFlow, results: pa.Schema) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that answers tuples, from the candidate rows that Spark has left.

    Parameters
    ----------
    flow : LookupFlow
        One with candidates.
    results : pyarrow.Schema
        The columns of results.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        decider = LookupDecider(flow.lookup)
        pieces = (columns for rows in map(drop_fillers, batches) for columns in decider.answer(rows))
        return gather_batches(pieces, results)

    return run
