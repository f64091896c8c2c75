"""The staged rows of tables: files of runs in a folder, and the version that each epoch of a query reads.

    runs/<name>               a run of the index, as the cached file of a segment
    epochs/<join>/<n>         the runs that epoch n of a join of a query reads (JSON)
    epochs/<join>/of-<run>    which table the join reads while the query runs once

A version of a table is the set of its runs. The first task of an epoch writes down the version, before any
row is looked up. The file is written only if there is none, so all tasks of the epoch, and an epoch that runs
again, read the same version. Only workers write: on Spark Connect, the client may be on another machine.

Two joins of a query that are alike have one name. They share the version that is written down, so they must
read one table.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow import fs

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri, make_private
from thetastream.engine.lookup import PROBES_AT_ONCE, Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import build
from thetastream.lowering.physical import SidePlan
from thetastream.runtime.emit import gather_batches
from thetastream.runtime.flow import Output
from thetastream.runtime.state import segment_cache
from thetastream.runtime.state.cache_folder import choose_cache_root
from thetastream.runtime.task_facts import ReadTask, TaskFacts

Batches = Iterable[pa.RecordBatch]
Version: TypeAlias = tuple[str, ...]
"""The names of the runs of a version of a table."""
RUN_ROWS = 1 << 20
RUN_BYTES = 1 << 27
"""The largest run."""
KEPT_EPOCHS = 64
"""The number of epochs whose versions are known. Spark may run the newest one again."""
KEPT_S = 24 * 3600
"""A run that no epoch reads is removed after this many seconds."""
KEPT_UNFINISHED_S = 30 * KEPT_S
"""A query that stays stopped for longer must not continue an epoch that it has not finished."""
FOLDER = "tables"
"""The name of the folder of staged tables."""
STAGED = pa.schema([("run", pa.string()), ("n_rows", pa.int64()), ("nbytes", pa.int64())])


class StagedTable(NamedTuple):
    """A table that is staged."""

    version: Version
    table: str
    """What tells the table from others of the same driver, also if their columns are the same."""


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
        """Make the step that writes rows of a table as runs, and returns a row for each run."""

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
            make_private(self._folder_of_host)
            if read_task().partition == 0:
                self.sweep()
            for block in gather(map(drop_fillers, batches), RUN_ROWS, RUN_BYTES, RUN_BYTES):
                run = build(plan, block)
                path = self._folder_of_host / uuid.uuid4().hex
                segment_cache.save(path, run, plan)
                if not path.exists():
                    what = f"the rows of a table must be staged in {path.parent}, and its disk refuses them"
                    raise StateError("TABLE_FOLDER", f"{what}; make room there, or name another mailbox=")
                if is_uri(self.root):
                    self._open_folder("runs").write(path.name, path.read_bytes())
                yield pa.RecordBatch.from_pylist(
                    [{"run": path.name, "n_rows": run.n_rows, "nbytes": run.nbytes}], schema=STAGED
                )

        return stage

    def choose_version(self, task: TaskFacts, join: str, own: StagedTable) -> Version:
        """Return the version that the epoch of a task reads: the own one, unless another is written down.

        Outside of a query, and where Spark does not tell the epoch, it is the own one. ``join`` names the
        join in the query.

        Raises
        ------
        StateError
            TABLES_ALIKE, or TABLE_MISSING if a run of the own version is not there any more. No epoch is
            bound to a version that is not there.
        """
        if task.epoch is None:
            self._use(own.version)
            return own.version
        folder = self._open_folder(f"epochs/{task.query}-{join}")
        if task.run is not None:
            _compare_tables(folder, task.run, own.table)
        if not folder.exists(str(task.epoch)):
            self._use(own.version)
            if folder.write_new(str(task.epoch), json.dumps({"runs": own.version}).encode()):
                self._forget_epochs(folder, task.epoch, own.version)
                return own.version
        return _read_entry(folder, task.epoch)

    def _use(self, version: Version) -> None:
        """Mark the runs of a version as used now, so that no sweep removes them."""
        runs = self._open_folder("runs")
        for name in version:
            if not runs.exists(name):
                what = f"staged rows of a table are not in {hide_secrets(self.root)} any more ({name})"
                hint = "make the DataFrame of the join again, which stages the table again"
                raise StateError("TABLE_MISSING", f"{what}; {hint}")
            if isinstance(runs.filesystem, fs.LocalFileSystem):
                os.utime(runs.locate(name))

    @staticmethod
    def _forget_epochs(folder: Folder, epoch: int, version: Version) -> None:
        """Forget epochs that Spark cannot run again.

        An epoch begins when those before are committed. So, of versions before this one, only the last is
        kept: one that changes each day would fill the disk.
        """
        older = sorted((int(name) for name in folder.list_files() if name.isdecimal()), reverse=True)
        older = [one for one in older if one < epoch]
        last = _read_entry(folder, older[0]) if older else version
        for one in older[1:]:
            is_far = one <= epoch - KEPT_EPOCHS
            if is_far or (last != version and _read_entry(folder, one) not in (last, version)):
                folder.remove(str(one))

    def open(self, version: Version, plan: IndexPlan, payload: pa.Schema) -> TableRuns:
        """Map the runs of a version.

        Raises
        ------
        StateError
            TABLE_MISSING if a run is not there any more, or is damaged.
        """
        try:
            return TableRuns([segment_cache.load(self._fetch(name), plan) for name in version], payload)
        except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            what = f"an epoch reads a version of a table that is not in {hide_secrets(self.root)} any more"
            hint = "restore the folder, or start the query with a new checkpoint"
            raise StateError("TABLE_MISSING", f"{what} ({error}); {hint}") from error

    def sweep(self) -> None:
        """Remove runs that are older than a day, unless an epoch of the last ``KEPT_UNFINISHED_S`` reads
        them."""
        read: set[str] = set()
        epochs = self._open_folder("epochs")
        for join in epochs.list_files():
            for name, (changed_ns, _) in epochs.list_files(join).items():
                if not name.isdecimal() or time.time() - changed_ns / 1e9 > KEPT_UNFINISHED_S:
                    continue
                # The runs of an entry that cannot be read stay, unless the entry is damaged.
                with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
                    read.update(json.loads(epochs.read(f"{join}/{name}"))["runs"])
        runs = self._open_folder("runs")
        for name, (changed_ns, _) in runs.list_files().items():
            if name not in read and time.time() - changed_ns / 1e9 > KEPT_S:
                with contextlib.suppress(OSError):
                    runs.remove(name)

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


def _read_entry(folder: Folder, epoch: int) -> Version:
    return tuple(json.loads(folder.read(str(epoch)))["runs"])


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

_OPENED: dict[tuple[Version, str, pa.Schema], TableRuns] = {}
"""The versions that this process has opened last, by the layout of their index and the columns of the table.
A version never changes."""
_MOST_OPENED = 16


def _open(folder: TableFolder, version: Version, plan: IndexPlan, payload: pa.Schema) -> TableRuns:
    key = version, segment_cache.describe_layout(plan), payload
    if key not in _OPENED:
        _OPENED[key] = folder.open(version, plan, payload)
        while len(_OPENED) > _MOST_OPENED:
            del _OPENED[next(iter(_OPENED))]
    return _OPENED[key]


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

    Parameters
    ----------
    flow : LookupFlow
    folder : TableFolder
    own : StagedTable
        The table as it was when the query was built.
    payload, results : pyarrow.Schema
        The columns of the table, and those of results.
    read_task : callable
        Reads the facts of the Spark task that runs the step.
    """

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        tuples = gather(map(drop_fillers, batches), PROBES_AT_ONCE)
        first = next(tuples, None)
        if first is None:
            return
        version = folder.choose_version(read_task(), flow.name, own)
        runs = _open(folder, version, flow.lookup.plan, payload)
        for batch in chain([first], tuples):
            yield from gather_batches(flow.lookup.answer(batch, runs), results)

    return run
