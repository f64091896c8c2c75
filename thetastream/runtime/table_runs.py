"""The staged rows of tables: files of runs in a folder, and the version that each epoch of a query reads.

    runs/<name>           a run of the index, as the cached file of a segment
    epochs/<join>/<n>     the runs that epoch n of a join of a query reads (JSON)

A version of a table is the set of its runs. The first task of an epoch writes down the version, before any
row is looked up. The file is written only if there is none, so all tasks of the epoch, and an epoch that runs
again, read the same version. Only workers write: on Spark Connect, the client may be on another machine.
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.errors import StateError
from thetastream.core.folder import Folder, hide_secrets, is_uri
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
FOLDER = "tables"
"""The name of the folder of staged tables."""
STAGED = pa.schema([("run", pa.string()), ("n_rows", pa.int64()), ("nbytes", pa.int64())])


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

    def make_staging_step(self, plan: IndexPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Make the step that writes rows of a table as runs, and returns a row for each run."""

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
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

    def choose_version(self, task: TaskFacts, join: str, own: Version) -> Version:
        """Return the version that the epoch of a task reads: ``own``, unless another one is written down.

        Outside of a query, and where Spark does not tell the epoch, it is ``own``. ``join`` names the join in
        the query.
        """
        if task.epoch is None:
            return own
        folder = self._open_folder(f"epochs/{task.query}-{join}")
        if folder.write_new(str(task.epoch), json.dumps({"runs": own}).encode()):
            self._forget_epochs(folder, task.epoch)
            return own
        return tuple(json.loads(folder.read(str(task.epoch)))["runs"])

    @staticmethod
    def _forget_epochs(folder: Folder, epoch: int) -> None:
        for name in folder.list_files():
            if name.isdecimal() and int(name) <= epoch - KEPT_EPOCHS:
                folder.remove(name)

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
        """Remove runs that no epoch reads and that are older than a day."""
        read: set[str] = set()
        epochs = self._open_folder("epochs")
        for join in epochs.list_files():
            for name in epochs.list_files(join):
                with contextlib.suppress(OSError, ValueError, KeyError):
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


_OPENED: dict[Version, TableRuns] = {}
"""The versions that this process has opened last. A version never changes."""
_MOST_OPENED = 16


def _open(folder: TableFolder, version: Version, plan: IndexPlan, payload: pa.Schema) -> TableRuns:
    if version not in _OPENED:
        _OPENED[version] = folder.open(version, plan, payload)
        while len(_OPENED) > _MOST_OPENED:
            del _OPENED[next(iter(_OPENED))]
    return _OPENED[version]


def make_lookup_step(
    flow: LookupFlow,
    folder: TableFolder,
    own: Version,
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
    own : tuple of str
        The version that the table had when the query was built.
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
