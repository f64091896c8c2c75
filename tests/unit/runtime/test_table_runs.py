"""Each epoch reads one version of a table, also if it runs again with another version at hand."""

import errno
import json
import os
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.engine.test_lookup import TABLE, make_block, plan
from thetastream.core.columns import HASH
from thetastream.core.errors import SessionError, StateError
from thetastream.core.folder import Folder
from thetastream.core.sides import Side
from thetastream.engine.lookup import TableRuns
from thetastream.engine.store.run import Run
from thetastream.engine.table_partitions import RunExtent
from thetastream.runtime import opened_table
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.host_runs import HostRuns
from thetastream.runtime.lookup_steps import make_lookup_step
from thetastream.runtime.opened_table import OpenedTable, name_layout, open_table
from thetastream.runtime.state import segment_cache
from thetastream.runtime.table_epochs import StagedTable, choose_version, list_epochs
from thetastream.runtime.table_folder import KEPT_S, KEPT_UNFINISHED_S, TableFolder
from thetastream.runtime.table_staging import make_staging_step
from thetastream.runtime.table_versions import (
    KEPT_EPOCHS,
    NEW,
    REPLACED_S,
    Refused,
    SourceCheck,
    Version,
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


def stage_version(folder: TableFolder, rows: list[tuple[int, int, int]]) -> Version:
    """Stage rows as a version, in two parts."""
    step = make_staging_step(folder, FLOW.lookup.plan, TaskFacts)
    found = []
    for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
        for batch in step([make_block(SIDE, part, True)]):
            found += batch.to_pylist()
    names = tuple(row["run"] for row in found)
    extents = tuple(RunExtent(row["nbytes"], tuple(map(tuple, row["bounds"]))) for row in found)
    layout = name_layout(FLOW.lookup.plan)
    return Version(NEW, names, len(rows), 100, time.time(), f"{rows}", extents, layout)


def open_all(folder: TableFolder, version: Version) -> TableRuns:
    return OpenedTable(folder, version, FLOW.lookup.plan, PAYLOAD).open_all()


def stage(folder: TableFolder, rows: list[tuple[int, int, int]], table: str = "t") -> StagedTable:
    """Stage rows as the only version of a table."""
    return StagedTable(replace(stage_version(folder, rows), number=1), table)


def choose(folder: TableFolder, task: TaskFacts, join: str, own: StagedTable) -> Version:
    """Return the version that the epoch of a task reads."""
    return choose_version(folder, task, join, "b", own).version


def age(paths: Iterable[Path], seconds: float) -> None:
    for path in paths:
        os.utime(path, (time.time() - seconds, time.time() - seconds))


COUNTERS_COLUMN = pa.field(COUNTERS, pa.string())
PAYLOAD = pa.schema([make_block(SIDE, TABLE, True).schema.field(one.block_column) for one in SIDE.carried])


def test_a_version_has_the_rows_that_were_staged(folder: TableFolder) -> None:
    opened = open_all(folder, stage(folder, TABLE).version)
    assert sum(meta.n_rows for meta in opened.segments) == len(TABLE)
    assert open_all(folder, stage(folder, []).version).segments == []


def test_an_epoch_that_runs_again_reads_the_version_that_it_read_before(folder: TableFolder) -> None:
    old, new = stage(folder, TABLE), stage(folder, TABLE[:9])
    assert choose(folder, in_epoch(5), "join", old) == old.version
    assert choose(folder, in_epoch(5, "second run"), "join", new) == old.version
    assert choose(folder, in_epoch(5), "another join", new) == new.version
    assert choose(folder, in_epoch(6, "second run"), "join", new) == new.version
    assert choose(folder, TaskFacts(), "join", old) == old.version  # outside of a query


def test_old_epochs_are_forgotten(folder: TableFolder) -> None:
    staged = [stage(folder, TABLE[:n]) for n in range(3)]

    def list_kept(epoch: int, number: int) -> list[int]:
        choose(folder, in_epoch(epoch, f"run {number}"), "join", staged[number])
        return sorted(int(name) for name in list_shared(folder, "epochs/query-join") if name.isdecimal())

    assert list_kept(0, 0) == [0]
    assert list_kept(10, 0) == [0, 10]
    assert list_kept(KEPT_EPOCHS, 0) == [10, KEPT_EPOCHS]
    assert list_kept(KEPT_EPOCHS + 1, 1) == [10, KEPT_EPOCHS, KEPT_EPOCHS + 1]
    assert list_kept(KEPT_EPOCHS + 2, 2) == [10, *range(KEPT_EPOCHS, KEPT_EPOCHS + 3)]
    # An epoch begins when those before are committed, so only the runs of the last ones may be read again.
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    staged += [stage(folder, TABLE)]
    kept = {run for one in staged[1:] for run in one.version.runs}
    assert set(list_shared(folder, "runs")) == kept


def test_joins_that_are_alike_must_read_one_table(folder: TableFolder) -> None:
    """They have one name in the query, so one of them would read the version of the other."""
    one, another = stage(folder, TABLE, "t"), stage(folder, TABLE[:5], "u")
    again = stage(folder, TABLE, "t")
    assert {choose(folder, in_epoch(0), "join", staged) for staged in (one, again)} == {one.version}
    with pytest.raises(StateError, match=r"\[TABLES_ALIKE\].*give one of the tables another alias"):
        choose(folder, in_epoch(0), "join", another)
    # The next run of the query may read another table, but not two of them, whatever epoch comes first.
    assert choose(folder, in_epoch(0, "second run"), "join", another) == one.version
    with pytest.raises(StateError, match="TABLES_ALIKE"):
        choose(folder, in_epoch(1, "second run"), "join", one)
    assert sum(name.startswith("of-") for name in list_shared(folder, "epochs/query-join")) == 1


def test_no_epoch_is_bound_to_a_version_that_is_not_there(folder: TableFolder) -> None:
    gone, there = StagedTable(Version(1, ("gone",), 1, 1, 0.0), "t"), stage(folder, TABLE)
    for task in (in_epoch(0), TaskFacts()):
        with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*make the DataFrame of the join again"):
            choose(folder, task, "join", gone)
    assert choose(folder, in_epoch(0), "join", there) == there.version


def run_step(how: str, folder: TableFolder, staged: StagedTable, payload: pa.Schema) -> list[pa.RecordBatch]:
    flow = plan("a.k <= b.k", how).flow()
    stream = make_block(flow.sides[Side.LEFT], TABLE[:3], False)
    left = pa.schema([stream.schema.field(one.block_column) for one in flow.sides[Side.LEFT].carried])
    results = pa.schema([*left, *payload, pa.field("present", pa.bool_()), COUNTERS_COLUMN])
    return list(make_lookup_step(flow, folder, staged, payload, results, read_task=TaskFacts)([stream]))


def test_tables_without_rows_keep_their_own_columns(folder: TableFolder) -> None:
    """All of them have the version without runs."""
    for type_ in (pa.int64(), pa.struct([("z", pa.string())])):
        payload = pa.schema([(name, type_) for name in PAYLOAD.names])
        batch, counters = run_step("left", folder, StagedTable(Version(1, (), 0, 0, 0.0), "t"), payload)
        assert batch.schema.types[-3] == type_
        found = json.loads(counters.column(COUNTERS)[0].as_py())
        assert (found["received"], found["probed"], found["tables"]["b"]["version"]) == (3, 3, 1)
        assert found["received_bytes"] >= 3 * 8


def test_a_worker_does_not_read_a_version_with_another_index(folder: TableFolder) -> None:
    """The query starts again with keys of another type while it has an epoch that is not finished."""
    staged = stage(folder, TABLE)
    choose(folder, in_epoch(0), "join", staged)
    for on in ("a.k <= b.k", "a.k <= b.k AND a.x <= b.x"):
        flow = plan(on, "inner").flow()
        stream = make_block(flow.sides[Side.LEFT], TABLE[:3], False)
        results = pa.schema([*stream.schema, *PAYLOAD, COUNTERS_COLUMN])
        step = make_lookup_step(flow, folder, staged, PAYLOAD, results, read_task=TaskFacts)
        if on == "a.k <= b.k":
            assert list(step([stream]))
            continue
        with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*another index"):
            list(step([stream]))


def test_a_version_that_nobody_reads_any_more_is_closed(
    folder: TableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage(folder, TABLE), stage(folder, TABLE[:4])
    loaded: list[str] = []
    load = HostRuns.load

    def count_and_load(self: HostRuns, name: str, *more: Any) -> Run:
        loaded.append(name)
        return load(self, name, *more)

    monkeypatch.setattr(HostRuns, "load", count_and_load)
    monkeypatch.setattr(opened_table, "_OPENED", {})
    for staged in (first, second, first, second):
        assert run_step("left", folder, staged, PAYLOAD)
    assert sorted(loaded) == sorted([*first.version.runs, *second.version.runs])
    monkeypatch.setattr(opened_table, "_OPEN_S", 0)
    loaded.clear()
    for staged in (first, first, second):
        assert run_step("left", folder, staged, PAYLOAD)
    # The first one is still open, and closes when the second one is read.
    assert sorted(loaded) == sorted(second.version.runs)
    assert len(opened_table._OPENED) == 1


def test_only_this_user_may_change_staged_rows(folder: TableFolder) -> None:
    runs = folder.host.folder
    runs.parent.mkdir(parents=True, exist_ok=True)
    if runs.exists():
        runs.rmdir()
    runs.symlink_to(runs.parent)
    with pytest.raises(SessionError, match="UNSAFE_FOLDER"):
        stage(folder, TABLE)
    runs.unlink()
    stage(folder, TABLE)
    assert runs.stat().st_mode & 0o777 == 0o700


def test_a_version_that_is_gone_or_damaged_is_refused(folder: TableFolder) -> None:
    with pytest.raises(StateError, match=r"\[TABLE_MISSING\].*No such file"):
        open_all(folder, Version(1, ("nothing",), 1, 1, 0.0))
    version = stage(folder, TABLE).version
    for name, run in list_shared(folder, "runs").items():
        data = bytearray(run.read_bytes())
        data[len(data) // 2] ^= 1
        moved = run.with_name("moved")
        moved.write_bytes(bytes(data))
        moved.rename(run)
        if "://" in folder.root:
            (folder.host.folder / name).unlink()
    segment_cache._KEPT.clear()
    with pytest.raises(StateError, match="TABLE_MISSING"):
        open_all(folder, version)


def stage_hashed(folder: TableFolder, parts: list[list[tuple[int, int, int]]], before: Version) -> Version:
    """Stage the rows of each part as a run, unless the version before has a run of these rows."""
    step = make_staging_step(folder, FLOW.lookup.plan, TaskFacts, before.runs)
    found = []
    for part in parts:
        block = make_block(SIDE, part, True)
        found += list(step([block.append_column(HASH, pa.array([hash(row) for row in part], pa.int64()))]))
    rows = pa.Table.from_batches(found).to_pylist()
    names = tuple(sorted(row["run"] for row in rows))
    content = str(sum(row["content"] for row in rows))
    return Version(NEW, names, 0, sum(row["nbytes"] for row in rows), time.time(), content)


def test_a_version_takes_the_runs_whose_rows_have_not_changed(folder: TableFolder) -> None:
    parts, versions = [TABLE[:9], TABLE[9:20], TABLE[20:]], folder.open_versions("prices")
    first = versions.add(stage_hashed(folder, parts, Version(NEW, (), 0, 0, 0.0)))
    written = {name: path.stat().st_ino for name, path in list_shared(folder, "runs").items()}
    shuffled = [parts[0][::-1], [*parts[1][:-1], (19, 0, 0)], parts[2]]
    second = versions.add(stage_hashed(folder, shuffled, first))
    (new,) = set(second.runs) - set(first.runs)
    assert len(second.runs) == len(first.runs) == 3
    found = {name: path.stat().st_ino for name, path in list_shared(folder, "runs").items()}
    assert found == {**written, new: found[new]}
    assert second.content != first.content
    opened = open_all(folder, second)
    ids = pa.concat_arrays([run.payload.column(PAYLOAD.names[0]) for run in opened.runs]).to_pylist()
    assert sorted(ids) == [row[0] for row in TABLE]
    # Runs that a later version has too stay when the version before goes.
    for number in ("1", "2"):
        path = list_shared(folder, "staged/prices")[number]
        path.write_text(json.dumps({**json.loads(path.read_text()), "staged_s": 1.0}))
    folder.drop_replaced("prices", keep=1)
    assert set(list_shared(folder, "runs")) == set(second.runs)
    # A run that another program has removed is written again.
    list_shared(folder, "runs")[new].unlink()
    third = stage_hashed(folder, shuffled, second)
    assert third.runs == second.runs
    assert folder.has_runs(third)


def test_a_worker_opens_the_runs_of_a_new_version_only(
    folder: TableFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened_table, "_OPENED", {})
    first = stage_hashed(folder, [TABLE[:9], TABLE[9:]], Version(NEW, (), 0, 0, 0.0))
    second = stage_hashed(folder, [TABLE[:9], TABLE[9:20]], first)
    runs_of = []
    for one in (first, second):
        table = open_table(folder, one, FLOW.lookup.plan, PAYLOAD)
        table.open_all()
        runs_of.append(table.runs)
    (name,) = runs_of[0].keys() & runs_of[1].keys()
    assert runs_of[0][name] is runs_of[1][name]


def test_one_worker_of_a_host_copies_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, copied = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host")), list[str]()
    (name, _) = stage(folder, TABLE).version.runs
    (folder.host.folder / name).unlink()
    write = Folder.write

    def count_and_write(self: Folder, name: str, *more: Any, **options: Any) -> None:
        copied.append(name)
        write(self, name, *more, **options)

    monkeypatch.setattr(Folder, "write", count_and_write)
    with ThreadPoolExecutor(8) as pool:
        (path,) = set(pool.map(lambda _: folder.host.fetch(name), range(8)))
    assert copied == [name]
    assert path.read_bytes() == list_shared(folder, "runs")[name].read_bytes()


def test_a_host_whose_disk_is_full_reads_the_shared_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    version = stage(folder, TABLE).version
    names = {path.name for path in folder.host.folder.iterdir()}
    for name in names:
        (folder.host.folder / name).unlink()
    segment_cache._KEPT.clear()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Folder, "write", refuse)
    with pytest.warns(UserWarning, match=r"takes no files .*No space left.*Results stay exact"):
        opened = open_all(folder, version)
    assert sum(run.n_rows for run in opened.runs) == len(TABLE)
    assert not names & {path.name for path in folder.host.folder.iterdir()}
    # What is damaged is not read from the shared folder either.
    run = list_shared(folder, "runs")[version.runs[0]]
    run.write_bytes(run.read_bytes()[:-9] + b"123456789")
    with pytest.raises(StateError, match="TABLE_MISSING"):
        open_all(folder, version)


def test_old_runs_that_no_epoch_reads_are_removed(folder: TableFolder) -> None:
    read, unread = stage(folder, TABLE), stage(folder, TABLE)
    used = stage(folder, TABLE)
    choose(folder, in_epoch(0), "join", read)
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    choose(folder, TaskFacts(), "join", used)
    names = {*read.version.runs, *used.version.runs, *stage(folder, TABLE).version.runs}
    assert set(list_shared(folder, "runs")) == names
    assert not set(unread.version.runs) & names
    # A query is stopped for very long. Its entries stay, so that it is refused.
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    for join in list_shared(folder, "epochs").values():
        age(join.iterdir(), KEPT_UNFINISHED_S + 60)
    new = stage(folder, TABLE)
    assert set(list_shared(folder, "runs")) == set(new.version.runs)
    assert choose(folder, in_epoch(0, "second run"), "join", new) == read.version


def follow(folder: TableFolder, rows: list[tuple[int, int, int]], **changes: object) -> StagedTable:
    """Stage rows as the next version of a table that changes."""
    version = folder.open_versions("prices").add(stage_version(folder, rows))
    return replace(StagedTable(version, "prices", "prices", is_followed=True), **changes)  # type: ignore[arg-type]


def test_an_epoch_reads_the_newest_version_and_never_another_one(folder: TableFolder) -> None:
    own = follow(folder, TABLE)
    assert choose(folder, in_epoch(0), "join", own).number == 1
    second = follow(folder, TABLE[:9])
    assert choose(folder, in_epoch(0), "join", own).number == 1
    assert choose(folder, in_epoch(0, "second run"), "join", second).number == 1
    # A task of the DataFrame of before reads the version of now.
    assert choose(folder, in_epoch(1), "another join", own) == second.version
    assert choose(folder, in_epoch(1, "second run"), "join", own) == second.version
    found = [(epoch, one.alias, one.version.number) for epoch, one in list_epochs(folder, "query")]
    assert found == [(0, "b", 1), (1, "b", 2), (1, "b", 2)]
    assert list_epochs(folder, "another query") == []


def test_tasks_that_race_for_an_epoch_read_one_version(folder: TableFolder) -> None:
    """Each task sees another newest version when it begins."""
    own = follow(folder, TABLE)

    def run(n: int) -> int:
        follow(folder, TABLE[: n + 1])
        return choose(folder, in_epoch(0, run=None), "join", own).number

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(run, range(16)))
    assert len(found) == 1
    assert folder.open_versions("prices").list_numbers() == list(range(1, 18))


def test_a_task_that_runs_again_adds_a_version_once(folder: TableFolder) -> None:
    versions, staged = folder.open_versions("prices"), stage_version(folder, TABLE)
    assert versions.read_newest() is None
    assert [versions.add(staged).number for _ in range(2)] == [1, 1]
    assert versions.add(stage_version(folder, TABLE)).number == 2
    assert versions.read_newest() == versions.read(2)


def test_versions_that_newer_ones_have_replaced_are_removed(folder: TableFolder) -> None:
    versions = folder.open_versions("prices")
    numbered = [follow(folder, TABLE[:n]) for n in range(1, 7)]
    choose(folder, in_epoch(0), "join", replace(numbered[1], versions=None))
    folder.drop_replaced("prices", keep=2)
    assert versions.list_numbers() == [1, 2, 3, 4, 5, 6]  # A task may have chosen each of them.
    for number in (3, 5):
        path = list_shared(folder, "staged/prices")[str(number)]
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "staged_s": time.time() - REPLACED_S - 1})
        )
    folder.drop_replaced("prices", keep=2)
    # 5 stays, as one of the newest two. The runs of 2 stay, because epoch 0 may run again.
    assert versions.list_numbers() == [1, 3, 5, 6]
    there = set(list_shared(folder, "runs"))
    kept = {one.version.number: set(one.version.runs) <= there for one in numbered}
    assert kept == {1: True, 2: True, 3: True, 4: False, 5: True, 6: True}
    assert choose(folder, in_epoch(0, "second run"), "join", numbered[-1]).number == 2


def test_runs_of_versions_stay_as_long_as_their_program_looks_at_them(folder: TableFolder) -> None:
    followed = follow(folder, TABLE)
    folder.open_versions("prices").write_check(SourceCheck(time.time()))
    age(list_shared(folder, "runs").values(), KEPT_S + 60)
    stage(folder, TABLE)
    assert set(followed.version.runs) <= set(list_shared(folder, "runs"))
    age(list_shared(folder, "staged/prices").values(), KEPT_S + 60)
    stage(folder, TABLE)
    assert not set(followed.version.runs) & set(list_shared(folder, "runs"))


def test_a_version_that_is_too_old_ends_the_query(folder: TableFolder) -> None:
    own = follow(folder, TABLE, max_age_s=60.0)
    versions = folder.open_versions("prices")
    path = list_shared(folder, "staged/prices")["1"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "staged_s": 1_000_000_000.0}))
    # The rows are old, and they are still those of the source.
    versions.write_check(SourceCheck(time.time() - 30))
    chosen = choose_version(folder, in_epoch(0), "join", "b", own)
    assert 30 <= time.time() - chosen.fresh_s < 60
    versions.write_check(SourceCheck(time.time() - 90, refused=Refused("TABLE_KEYS", "twice", time.time())))
    with pytest.raises(StateError, match=r"\[TABLE_STALE\].*version 1, staged at 2001.*with TABLE_KEYS; see"):
        choose_version(folder, in_epoch(1), "join", "b", own)
    # An epoch that runs again reads its version, however old it is by now.
    assert choose_version(folder, in_epoch(0, "second run"), "join", "b", own) == chosen
    unbounded = choose_version(folder, in_epoch(1), "join", "b", replace(own, max_age_s=None))
    assert unbounded.refused == "TABLE_KEYS"


def test_tasks_that_do_not_know_their_epoch_do_not_follow_a_table(folder: TableFolder) -> None:
    """Two tasks of one epoch could read two versions."""
    own = follow(folder, TABLE)
    follow(folder, TABLE[:3])
    with pytest.raises(StateError, match=r"\[EPOCH_UNKNOWN\].*every= follows"):
        choose_version(folder, TaskFacts(), "join", "b", own)
    assert choose(folder, TaskFacts(), "join", replace(own, is_followed=False)).number == 1


def test_a_host_removes_the_copies_that_were_used_least_recently(tmp_path: Path) -> None:
    staged = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    first, second, third = (stage_version(staged, TABLE[n : n + 10]).runs[0] for n in range(3))
    size = list_shared(staged, "runs")[first].stat().st_size
    host = replace(staged, cache_folder=str(tmp_path / "another host"), cache_bytes=2 * size).host
    for name in (first, second):
        host.fetch(name)
    age([host.folder / second, host.folder / first], 60)
    host.mark_used(first)
    host.fetch(third)
    assert {path.name for path in host.folder.iterdir() if path.suffix != ".lock"} == {first, third}


def test_a_worker_whose_copy_was_removed_reads_the_shared_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of a host with little room remove copies that others have fetched and not yet mapped."""
    staged = TableFolder((tmp_path / "shared").as_uri(), str(tmp_path / "host"))
    (name, _) = stage_version(staged, TABLE).runs
    host = replace(staged, cache_folder=str(tmp_path / "another host")).host
    segment_cache._KEPT.clear()
    fetch = HostRuns.fetch

    def fetch_and_remove(self: HostRuns, name: str) -> Path:
        path = fetch(self, name)
        path.unlink()
        return path

    monkeypatch.setattr(HostRuns, "fetch", fetch_and_remove)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert host.load(name, FLOW.lookup.plan).n_rows == len(TABLE) // 2
    list_shared(staged, "runs")[name].unlink()
    with pytest.raises(FileNotFoundError):
        host.load(name, FLOW.lookup.plan)
