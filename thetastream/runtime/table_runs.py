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
from thetastream.core.folder import Folder
from thetastream.engine.lookup import PROBES_AT_ONCE, Lookup, TableRuns
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.run import build
from thetastream.lowering.physical import SidePlan
from thetastream.runtime.emit import gather_batches
from thetastream.runtime.flow import Output
from thetastream.runtime.state import segment_cache
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
    """A folder of staged tables, which all workers reach. Picklable."""

    root: str

    @property
    def runs(self) -> Path:
        """The folder of runs."""
        return Path(self.root) / "runs"

    def make_staging_step(self, plan: IndexPlan) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        """Make the step that writes rows of a table as runs, and returns a row for each run."""

        def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
            self.sweep()
            for block in gather(map(drop_fillers, batches), RUN_ROWS, RUN_BYTES, RUN_BYTES):
                run = build(plan, block)
                path = self.runs / uuid.uuid4().hex
                segment_cache.save(path, run, plan)
                if not path.exists():
                    what = f"the rows of a table must be staged in {self.root}, and its disk refuses them"
                    raise StateError("TABLE_FOLDER", f"{what}; make room there, or name another mailbox=")
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
        folder = Folder(self.root, f"epochs/{task.query}-{join}")
        folder.make(is_private=True)
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
            return TableRuns([segment_cache.load(self.runs / name, plan) for name in version], payload)
        except (OSError, EOFError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            what = f"an epoch reads a version of a table that {self.root} does not have any more ({error})"
            hint = "restore the folder, or start the query with a new checkpoint"
            raise StateError("TABLE_MISSING", f"{what}; {hint}") from error

    def sweep(self) -> None:
        """Remove runs that no epoch reads and that are older than a day."""
        read: set[str] = set()
        for entry in (Path(self.root) / "epochs").glob("*/*"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                read.update(json.loads(entry.read_text())["runs"])
        for run in self.runs.glob("*"):
            with contextlib.suppress(OSError):
                if run.name not in read and not _is_new(run):
                    segment_cache.discard(run)


def _is_new(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < KEPT_S


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
