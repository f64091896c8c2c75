"""Each epoch reads one version of a table, also if it runs again with another version at hand."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.engine.test_lookup import TABLE, make_block, plan
from thetastream.core.errors import StateError
from thetastream.core.sides import Side
from thetastream.runtime import table_runs
from thetastream.runtime.table_runs import KEPT_EPOCHS, KEPT_S, TableFolder
from thetastream.runtime.task_facts import TaskFacts

FLOW = plan("a.k <= b.k", "inner").flow()
SIDE = FLOW.sides[Side.RIGHT]


@pytest.fixture(params=["a path", "a URI"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> TableFolder:
    """A folder of tables. Each host has copies of the runs of a folder that is a URI."""
    shared = tmp_path / "shared"
    if request.param == "a path":
        return TableFolder(str(shared))
    return TableFolder(shared.as_uri(), str(tmp_path / "host"))


def list_shared(folder: TableFolder, inside: str) -> dict[str, Path]:
    """List the files that all hosts share."""
    shared = Path(folder.root.removeprefix("file://")) / "tables" / inside
    return {path.name: path for path in shared.iterdir()}


def in_epoch(number: int) -> TaskFacts:
    return TaskFacts("query", number)


def stage(folder: TableFolder, rows: list[tuple[int, int, int]]) -> tuple[str, ...]:
    """Stage rows as a version, in two parts."""
    step = folder.make_staging_step(FLOW.lookup.plan)
    names = []
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        for batch in step([make_block(SIDE, part, True)]):
            names += batch.column("run").to_pylist()
    return tuple(names)


PAYLOAD = pa.schema([make_block(SIDE, TABLE, True).schema.field(one.block_column) for one in SIDE.carried])


def test_a_version_has_the_rows_that_were_staged(folder: TableFolder) -> None:
    opened = folder.open(stage(folder, TABLE), FLOW.lookup.plan, PAYLOAD)
    assert sum(meta.n_rows for meta in opened.segments) == len(TABLE)
    assert folder.open(stage(folder, []), FLOW.lookup.plan, PAYLOAD).segments == []


def test_an_epoch_that_runs_again_reads_the_version_that_it_read_before(folder: TableFolder) -> None:
    old, new = ("1", "2"), ("3",)
    assert [folder.choose_version(in_epoch(5), "join", own) for own in (old, new)] == [old, old]
    assert folder.choose_version(in_epoch(5), "another join", new) == new
    assert folder.choose_version(in_epoch(6), "join", new) == new
    assert folder.choose_version(TaskFacts(), "join", old) == old  # outside of a query


def test_old_epochs_are_forgotten(folder: TableFolder) -> None:
    for epoch in (0, 1, KEPT_EPOCHS):
        folder.choose_version(in_epoch(epoch), "join", ("v",))
    assert set(list_shared(folder, "epochs/query-join")) == {"1", str(KEPT_EPOCHS)}


def test_a_version_that_is_gone_or_damaged_is_refused(folder: TableFolder) -> None:
    with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*No such file"):
        folder.open(("nothing",), FLOW.lookup.plan, PAYLOAD)
    version = stage(folder, TABLE)
    for name, run in list_shared(folder, "runs").items():
        data = bytearray(run.read_bytes())
        data[len(data) // 2] ^= 1
        moved = run.with_name("moved")
        moved.write_bytes(bytes(data))
        moved.rename(run)
        if "://" in folder.root:
            (folder._folder_of_host / name).unlink()
    table_runs.segment_cache._KEPT.clear()
    with pytest.raises(StateError, match="TABLE_MISSING"):
        folder.open(version, FLOW.lookup.plan, PAYLOAD)


def test_old_runs_that_no_epoch_reads_are_removed(folder: TableFolder) -> None:
    read, unread = (stage(folder, TABLE) for _ in range(2))
    folder.choose_version(in_epoch(0), "join", read)
    long_ago = time.time() - KEPT_S - 60
    for path in list_shared(folder, "runs").values():
        os.utime(path, (long_ago, long_ago))
    new = stage(folder, TABLE)
    assert set(list_shared(folder, "runs")) == {*read, *new}
    assert not set(unread) & {*read, *new}
