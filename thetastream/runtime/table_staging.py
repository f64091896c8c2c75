"""Stages the rows of a table: writes them as runs of an index into the folder that all workers reach.

A run has the digest of its rows in its name, so a version takes the runs of the one before whose rows have
not changed.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from thetastream.core.blocks import drop_fillers, gather
from thetastream.core.columns import HASH
from thetastream.core.errors import StateError
from thetastream.core.keys import Int64s
from thetastream.engine.store.box import IndexPlan, encode_key_rows
from thetastream.engine.store.run import Run, build
from thetastream.engine.table_partitions import find_bounds
from thetastream.runtime.host_runs import HostRuns
from thetastream.runtime.state import segment_cache
from thetastream.runtime.table_folder import TableFolder, mark_used
from thetastream.runtime.task_facts import ReadTask

Batches = Iterable[pa.RecordBatch]
RUN_ROWS = 1 << 21
RUN_BYTES = 1 << 27
"""The largest run."""
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


def make_staging_step(
    folder: TableFolder, plan: IndexPlan, read_task: ReadTask, before: Collection[str] = ()
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Make the step that writes rows of a table as runs, and returns a row for each run.

    Rows may have a hash in the column ``HASH``. ``before`` has the runs of the version before, which are
    not written again if they have the same rows.
    """
    known = {name.partition("-")[0]: name for name in before if "-" in name}

    def stage(batches: Batches) -> Iterator[pa.RecordBatch]:
        folder.host.make_folder()
        if read_task().partition == 0:
            folder.sweep()
        for block in gather(map(drop_fillers, batches), RUN_ROWS, RUN_BYTES, RUN_BYTES):
            yield _stage_run(folder.host, plan, block, known)
            del block
        # Arrow keeps the memory of the largest run for later, and Spark keeps the worker.
        pa.default_memory_pool().release_unused()

    return stage


def _stage_run(
    host: HostRuns, plan: IndexPlan, block: pa.RecordBatch, known: Mapping[str, str]
) -> pa.RecordBatch:
    """Find the run of some rows of a table, or write it, and describe it in a row.

    ``known`` has runs by the digest of their rows.
    """
    rows, hashes = _cut_hashes(block)
    name, content = uuid.uuid4().hex, None
    if hashes is not None:
        digest = blake2b(np.sort(hashes).tobytes(), digest_size=16).hexdigest()
        name, content = f"{digest}-{name[:8]}", int(hashes.sum())
        name = known.get(digest, name)
    keys = encode_key_rows(plan.stored, plan.condition, rows)
    if not mark_used(host.shared, name):
        _write_run(host, name, build(plan, rows, keys), plan)
    nbytes = host.shared.filesystem.get_file_info(host.shared.locate(name)).size
    found = {"run": name, "n_rows": rows.num_rows, "nbytes": nbytes, "content": content}
    return pa.RecordBatch.from_pylist([{**found, "bounds": find_bounds(keys)}], schema=STAGED)


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
