"""The staged rows of tables: files of runs in a folder, and the step that looks tuples up in them.

    runs/<name>               a run of the index, as the cached file of a segment
    epochs/<join>/of-<run>    which table the join reads while the query runs once

A version of a table is the set of its runs (``thetastream.runtime.table_versions``). Only workers read and
write these files: on Spark Connect, the client may be on another machine.

Two joins of a query that are alike have one name. They share the version that is written down, so they must
read one table.
"""

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import fs

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.columns import HASH
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri, make_private
from thetastream.engine.counters import Counters
from thetastream.engine.lookup import PROBES_AT_ONCE, Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import build
from thetastream.lowering.physical import SidePlan
from thetastream.runtime.emit import build_counters_batch, count_emitted, gather_batches
from thetastream.runtime.flow import Output
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.segment_cache import choose_cache_root
from thetastream.runtime.table_versions import EpochVersion, EpochVersions, TableVersions, Version
from thetastream.runtime.task_facts import ReadTask, TaskFacts

Batches = Iterable[pa.RecordBatch]
RUN_ROWS = 1 << 20
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
"""What a task returns for each run that it has written. ``content`` is the sum of the hashes of the rows."""


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
    """The columns that leave the lookup, and those that the user gets."""

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
        self, plan: IndexPlan, read_task: ReadTask
    ) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Make the step that writes rows of a table as runs, and returns a row for each run.

        Rows may have a hash in the column ``HASH``.
        """

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
            make_private(self._folder_of_host)
            if read_task().partition == 0:
                self.sweep()
            for block in gather(map(drop_fillers, batches), RUN_ROWS, RUN_BYTES, RUN_BYTES):
                yield self._write_run(plan, block)
                del block
            # Arrow keeps the memory of the largest run for later, and Spark keeps the worker.
            pa.default_memory_pool().release_unused()

        return stage

    def _write_run(self, plan: IndexPlan, block: pa.RecordBatch) -> pa.RecordBatch:
        """Write rows of a table as a run, and describe it in a row."""
        rows, content = _cut_hashes(block)
        run = build(plan, rows)
        path = self._folder_of_host / uuid.uuid4().hex
        segment_cache.save(path, run, plan)
        if not path.exists():
            what = f"the rows of a table must be staged in {path.parent}, and its disk refuses them"
            raise StateError("TABLE_FOLDER", f"{what}; make room there, or name another mailbox=")
        if is_uri(self.root):
            self._open_folder("runs").write(path.name, path.read_bytes())
        return pa.RecordBatch.from_pylist(
            [{"run": path.name, "n_rows": run.n_rows, "nbytes": run.nbytes, "content": content}],
            schema=STAGED,
        )

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
            self._use(own.version)
            return EpochVersion(alias, own.version, own.version.staged_s)
        folder = self._open_folder(f"epochs/{task.query}-{join}")
        if task.run is not None:
            _compare_tables(folder, task.run, own.table)
        epochs = EpochVersions(folder)
        found = epochs.find(task.epoch)
        if found is None:
            chosen = self._find_newest(alias, own)
            _refuse_stale(chosen, own)
            self._use(chosen.version)
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

    def _use(self, version: Version) -> None:
        """Mark the runs of a version as used now, so that no sweep removes them."""
        runs = self._open_folder("runs")
        for name in version.runs:
            if not runs.exists(name):
                what = f"staged rows of a table are not in {hide_secrets(self.root)} any more ({version})"
                hint = "make the DataFrame of the join again, which stages the table again"
                raise StateError("TABLE_MISSING", f"{what}; {hint}")
            if isinstance(runs.filesystem, fs.LocalFileSystem):
                os.utime(runs.locate(name))

    def has_runs(self, version: Version) -> bool:
        """Whether all runs of a version are there."""
        runs = self._open_folder("runs")
        return all(map(runs.exists, version.runs))

    def open(self, version: Version, plan: IndexPlan, payload: pa.Schema) -> TableRuns:
        """Map the runs of a version.

        Raises
        ------
        StateError
            TABLE_MISSING if a run is not there any more, or is damaged.
        """
        try:
            return TableRuns([segment_cache.load(self._fetch(name), plan) for name in version.runs], payload)
        except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            what = f"an epoch reads {version} of a table, which is not in {hide_secrets(self.root)} any more"
            hint = "restore the folder, or start the query with a new checkpoint"
            raise StateError("TABLE_MISSING", f"{what} ({error}); {hint}") from error

    def drop_replaced(self, name: str, keep: int) -> None:
        """Remove versions of a table that newer ones have replaced, and their runs.

        The newest ``keep`` versions stay, and so do the runs that an epoch reads which Spark may run again.
        """
        versions = self.open_versions(name)
        replaced = versions.list_replaced(keep, time.time())
        if replaced:
            needed = self._list_repeated()
            for version in replaced:
                versions.remove(version)
                self.remove_runs(set(version.runs) - needed)

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
                one = self.open_versions(table)
                for number in one.list_numbers():
                    with contextlib.suppress(FileNotFoundError):
                        needed.update(one.read(number).runs)
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

    def _fetch(self, name: str) -> Path:
        """Copy a run to this host, unless it is there."""
        path = self._folder_of_host / name
        if is_uri(self.root) and not path.exists():
            cached = Folder(str(path.parent), "")
            cached.make(is_private=True)
            cached.write(name, self._open_folder("runs").read(name))
        return path

    def _open_folder(self, name: str) -> Folder:
        folder = Folder(self.root, f"{FOLDER}/{name}")
        folder.make(is_private=True)
        return folder


def _cut_hashes(block: pa.RecordBatch) -> tuple[pa.RecordBatch, int | None]:
    """Cut the column of hashes off; return the rows, and the sum of the hashes modulo 2**64."""
    if HASH not in block.schema.names:
        return block, None
    hashes = block.column(HASH).to_numpy(zero_copy_only=False)
    return block.drop_columns([HASH]), int(hashes.astype(np.int64).sum())


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
    key, now = (version.runs, segment_cache.describe_layout(plan), payload), time.monotonic()
    for other in [one for one, (read_s, _) in _OPENED.items() if one != key and now - read_s > _OPEN_S]:
        del _OPENED[other]
    runs = _OPENED[key][1] if key in _OPENED else folder.open(version, plan, payload)
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
            counters.probed += batch.num_rows
            pieces = count_emitted(flow.lookup.answer(batch, runs), counters)
            for found in gather_batches(pieces, results):
                counters.matched += found.num_rows
                yield found
        yield build_counters_batch(task.partition, counters, results)

    return run
