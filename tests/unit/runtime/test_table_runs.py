"""Each epoch reads one version of a table, also if it runs again with another version at hand."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.engine.test_lookup import TABLE, make_block, plan
from thetastream.core.errors import SessionError, StateError
from thetastream.core.sides import Side
from thetastream.runtime import table_runs
from thetastream.runtime.table_runs import (
    KEPT_EPOCHS,
    KEPT_S,
    KEPT_UNFINISHED_S,
    StagedTable,
    TableFolder,
    make_lookup_step,
)
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


def in_epoch(number: int, run: str | None = "first run") -> TaskFacts:
    return TaskFacts("query", number, run=run)


def stage(folder: TableFolder, rows: list[tuple[int, int, int]], table: str = "t") -> StagedTable:
    """Stage rows as a version, in two parts."""
    step = folder.make_staging_step(FLOW.lookup.plan, TaskFacts)
    names = []
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        for batch in step([make_block(SIDE, part, True)]):
            names += batch.column("run").to_pylist()
    return StagedTable(tuple(names), table)


def age(paths: Iterable[Path], seconds: float) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds, time.time() - seconds))


PAYLOAD = pa.schema([make_block(SIDE, TABLE, True).schema.field(one.block_column) for one in SIDE.carried])


def test_a_version_has_the_rows_that_were_staged(folder: TableFolder) -> None:
    opened = folder.open(stage(folder, TABLE).version, FLOW.lookup.plan, PAYLOAD)
    assert sum(meta.n_rows for meta in opened.segments) == len(TABLE)
    assert folder.open(stage(folder, []).version, FLOW.lookup.plan, PAYLOAD).segments == []


def test_an_epoch_that_runs_again_reads_the_version_that_it_read_before(folder: TableFolder) -> None:
    old, new = stage(folder, TABLE), stage(folder, TABLE[:9])
    assert folder.choose_version(in_epoch(5), "join", old) == old.version
    assert folder.choose_version(in_epoch(5, "second run"), "join", new) == old.version
    assert folder.choose_version(in_epoch(5), "another join", new) == new.version
    assert folder.choose_version(in_epoch(6, "second run"), "join", new) == new.version
    assert folder.choose_version(TaskFacts(), "join", old) == old.version  # outside of a query


def test_old_epochs_are_forgotten(folder: TableFolder) -> None:
    staged = [stage(folder, TABLE[:n]) for n in range(3)]

    def choose(epoch: int, number: int) -> list[int]:
        folder.choose_version(in_epoch(epoch, f"run {number}"), "join", staged[number])
        return sorted(int(name) for name in list_shared(folder, "epochs/query-join") if name.isdecimal())

    assert choose(0, 0) == [0]
    assert choose(10, 0) == [0, 10]
    assert choose(KEPT_EPOCHS, 0) == [10, KEPT_EPOCHS]
    # When the version changes, all epochs before the last one were committed.
    assert choose(KEPT_EPOCHS + 1, 1) == [10, KEPT_EPOCHS, KEPT_EPOCHS + 1]
    assert choose(KEPT_EPOCHS + 2, 2) == [KEPT_EPOCHS + 1, KEPT_EPOCHS + 2]


def test_joins_that_are_alike_must_read_one_table(folder: TableFolder) -> None:
    """They have one name in the query, so one of them would read the version of the other."""
    one, another = stage(folder, TABLE, "t"), stage(folder, TABLE[:5], "u")
    again = stage(folder, TABLE, "t")
    assert {folder.choose_version(in_epoch(0), "join", staged) for staged in (one, again)} == {one.version}
    with pytest.raises(StateError, match=r"\[TABLES_ALIKE\].*give one of the tables another alias"):
        folder.choose_version(in_epoch(0), "join", another)
    # The next run of the query may read another table, but not two of them, whatever epoch comes first.
    assert folder.choose_version(in_epoch(0, "second run"), "join", another) == one.version
    with pytest.raises(StateError, match="TABLES_ALIKE"):
        folder.choose_version(in_epoch(1, "second run"), "join", one)
    assert sum(name.startswith("of-") for name in list_shared(folder, "epochs/query-join")) == 1


def test_no_epoch_is_bound_to_a_version_that_is_not_there(folder: TableFolder) -> None:
    gone, there = StagedTable(("gone",), "t"), stage(folder, TABLE)
    for task in (in_epoch(0), TaskFacts()):
        with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*make the DataFrame of the join again"):
            folder.choose_version(task, "join", gone)
    assert folder.choose_version(in_epoch(0), "join", there) == there.version


def run_step(how: str, folder: TableFolder, staged: StagedTable, payload: pa.Schema) -> list[pa.RecordBatch]:
    flow = plan("a.k <= b.k", how).flow()
    stream = make_block(flow.sides[Side.LEFT], TABLE[:3], False)
    left = pa.schema([stream.schema.field(one.block_column) for one in flow.sides[Side.LEFT].carried])
    results = pa.schema([*left, *payload, pa.field("present", pa.bool_())])
    return list(make_lookup_step(flow, folder, staged, payload, results, read_task=TaskFacts)([stream]))


def test_tables_without_rows_keep_their_own_columns(folder: TableFolder) -> None:
    """All of them have the version without runs."""
    for type_ in (pa.int64(), pa.struct([("z", pa.string())])):
        payload = pa.schema([(name, type_) for name in PAYLOAD.names])
        (batch,) = run_step("left", folder, StagedTable((), "t"), payload)
        assert batch.schema.types[-2] == type_


def test_a_worker_does_not_read_a_version_with_another_index(folder: TableFolder) -> None:
    """The query starts again with keys of another type while it has an epoch that is not finished."""
    staged = stage(folder, TABLE)
    folder.choose_version(in_epoch(0), "join", staged)
    for on in ("a.k <= b.k", "a.k <= b.k AND a.x <= b.x"):
        flow = plan(on, "inner").flow()
        stream = make_block(flow.sides[Side.LEFT], TABLE[:3], False)
        results = pa.schema([*stream.schema, *PAYLOAD])
        step = make_lookup_step(flow, folder, staged, PAYLOAD, results, read_task=TaskFacts)
        if on == "a.k <= b.k":
            assert list(step([stream]))
            continue
        with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*another index"):
            list(step([stream]))


def test_only_this_user_may_change_staged_rows(folder: TableFolder) -> None:
    runs = folder._folder_of_host
    runs.parent.mkdir(parents=True)
    runs.symlink_to(runs.parent)
    with pytest.raises(SessionError, match="UNSAFE_FOLDER"):
        stage(folder, TABLE)
    runs.unlink()
    stage(folder, TABLE)
    assert runs.stat().st_mode & 0o777 == 0o700


def test_a_version_that_is_gone_or_damaged_is_refused(folder: TableFolder) -> None:
    with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*No such file"):
        folder.open(("nothing",), FLOW.lookup.plan, PAYLOAD)
    version = stage(folder, TABLE).version
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
    read, unread = stage(folder, TABLE), stage(folder, TABLE)
    used = stage(folder, TABLE)
    folder.choose_version(in_epoch(0), "join", read)
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    folder.choose_version(TaskFacts(), "join", used)
    names = {*read.version, *used.version, *stage(folder, TABLE).version}
    assert set(list_shared(folder, "runs")) == names
    assert not set(unread.version) & names
    # A query is stopped for very long. Its entries stay, so that it is refused.
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    for join in list_shared(folder, "epochs").values():
        age(join.iterdir(), KEPT_UNFINISHED_S + 60)
    new = stage(folder, TABLE)
    assert set(list_shared(folder, "runs")) == set(new.version)
    assert folder.choose_version(in_epoch(0, "second run"), "join", new) == read.version
