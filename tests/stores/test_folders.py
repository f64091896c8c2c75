"""Stores in folders: their files, their log, and where the folder may lie."""

import resource
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.support.stores import HELD, fill, read_ids, stage
from thetastream.core.errors import QueryError, StoreError
from thetastream.results import history, version_log
from thetastream.results.snapshots import Snapshots
from thetastream.stores import DeltaStore, ParquetStore, read_store
from thetastream.stores.delta import _refuse_damage


def test_there_is_no_store_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="NO_STORE"):
        ParquetStore(str(tmp_path)).read()


def test_a_torn_entry_of_the_log_is_named(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    store.commit("q", 0, stage(store, 0, 1))
    entry = tmp_path / "_log" / f"{1:020}.json"
    entry.write_text(entry.read_text()[:-9])
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*1\.json"):
        store.read()


def test_a_torn_state_of_the_log_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    for epoch in range(3):
        store.commit("q", epoch, stage(store, epoch, epoch))
    store.compact()
    # A writer looked for version 12 for ever.
    for name in ("state-of-mind.json", "state-9.json", "12.json", "12"):
        (tmp_path / "_log" / name).write_text("{}")
    history._KNOWN.clear()
    version_log._NEWEST.clear()
    assert read_ids(store) == [0, 1, 2]
    assert store.commit("q", 3, stage(store, 3, 3))
    (state,) = (tmp_path / "_log").glob("state-0*.json")
    state.write_text(state.read_text()[:-9])
    history._KNOWN.clear()
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*the state after .*/_log/0"):
        store.read()


def test_files_are_plain_parquet_with_bounds_and_sorted_by_key(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    (staged,) = stage(store, 0, 5, 3, 4)
    assert staged.rows == 3
    assert staged.bounds["id"] == (3, 5)
    assert staged.bounds["a.symbol"] == ("s0", "s2")
    store.commit("q", 0, [staged])
    (file,) = store.files()
    assert pq.read_table(file)["id"].to_pylist() == [3, 4, 5]
    assert Path(file).stat().st_size == staged.nbytes
    assert store.files(key={"id": 6}) == store.files(until="2026-01-05 09:03") == []
    assert store.files(since="2026-01-05 09:05") == [file]


@pytest.mark.parametrize("kind", [ParquetStore, DeltaStore])
def test_a_folder_is_the_results_once_it_is_swept_at_once_and_no_query_has_failed(
    kind: type[ParquetStore], tmp_path: Path
) -> None:
    store = kind(str(tmp_path))
    store.describe(HELD)
    stage(store, 0, 1)  # an attempt that failed
    for epoch in range(4):
        store.commit("q", epoch, stage(store, epoch, epoch))
    assert store.compact() == 4

    def read_folder() -> list[int]:
        return sorted(pq.read_table(tmp_path)["id"].to_pylist())

    store.sweep()
    assert read_folder() == [0, 0, 1, 1, 2, 2, 3, 3]  # Merged files stay for an hour.
    store.sweep(grace_s=0)
    assert read_folder() == read_ids(store) == [0, 1, 2, 3]
    staged = stage(store, 4, 4)  # Now the query fails. It commits this epoch when it continues.
    store.sweep(grace_s=0)
    assert read_folder() == [0, 1, 2, 3, 4]
    assert read_ids(store) == [0, 1, 2, 3]
    store.commit("q", 4, staged)
    assert read_folder() == read_ids(store)


def test_a_delta_table_has_each_commit_once(tmp_path: Path) -> None:
    store = DeltaStore(str(tmp_path))
    store.describe(HELD)
    store.commit("q", 0, stage(store, 0, 1, 2))
    # A crash comes between the commit of the store and that of the table.
    ParquetStore(store.path).commit("q", 1, stage(store, 1, 3))
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    store.describe(HELD)  # The query starts again.
    assert not store.commit("q", 1, stage(store, 1, 3))
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    version = store.open_table().version()
    store.describe(HELD)
    assert store.open_table().version() == version
    table = store.open_table().to_pyarrow_table()
    assert sorted(row["a"]["symbol"] for row in table.to_pylist()) == ["s0", "s1", "s2"]


def test_a_disk_that_takes_no_files_is_no_damage_of_a_delta_table(tmp_path: Path) -> None:
    store = DeltaStore(str(tmp_path))
    store.describe(HELD)
    ParquetStore(store.path).commit("q", 0, stage(store, 0, 1, 2))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*log of the Delta table.*too large"):
            store.backend.publish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.describe(HELD)
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [1, 2]


@pytest.mark.parametrize("kind", [ParquetStore, DeltaStore])
def test_a_full_disk_is_named_by_tasks_and_commits(kind: type[ParquetStore], tmp_path: Path) -> None:
    """A task ended in an error of the operating system, and a commit said that connecting failed."""
    store = kind(str(tmp_path))
    store.describe(HELD)
    staged = stage(store, 0, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*part-q-000001.* too large.*make room"):
            stage(store, 1, 2)
        with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*the log of .* too large.*make room"):
            store.commit("q", 0, staged)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.commit("q", 0, staged)
    assert store.commit("q", 1, stage(store, 1, 2))
    assert read_ids(store) == [1, 2]
    assert store.verify().is_intact


def test_an_object_store_that_does_not_answer_is_no_damage_of_a_delta_table() -> None:
    why = "Generic S3 error\n  \x1b[31m\u21b3\x1b[0m HTTP error\n  \x1b[31m\u21b3\x1b[0m tcp connect error\n"
    read = r"STORE_UNREACHABLE.* Generic S3 error HTTP error tcp connect error"
    with pytest.raises(StoreError, match=read), _refuse_damage("s3://bucket/pairs"):
        raise OSError(why)
    with pytest.raises(StoreError, match="STORE_DAMAGED"), _refuse_damage("s3://bucket/pairs"):
        raise FileNotFoundError("Object at location _delta_log/0.json not found")


@pytest.mark.parametrize("kind", [ParquetStore, DeltaStore])
def test_a_store_may_be_a_uri(kind: type[ParquetStore], tmp_path: Path) -> None:
    store = kind(f"file://{tmp_path}/store")
    assert store.is_shared
    assert not kind(str(tmp_path)).is_shared
    store.describe(HELD)
    fill(store, range(4), Snapshots(size=1))
    expected = read_ids(store)
    assert len(expected) == 7
    assert store.compact() == 4
    assert read_ids(store) == expected
    assert read_store(f"{store.kind}:{store.path}") == store
    assert store.sweep(grace_s=0) == 4
    assert read_ids(store) == expected


def test_a_relative_folder_is_made_absolute_where_the_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ParquetStore("store")
    monkeypatch.chdir("/")
    assert store.path == str(tmp_path / "store")


def test_a_folder_with_a_colon_is_a_path_and_no_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = ParquetStore("12:30")
    assert (store.path, store.is_shared) == (str(tmp_path / "12:30"), False)
    store.describe(HELD)
    fill(store, range(2), Snapshots(size=1))
    assert len(read_ids(store)) == 3


def test_other_programs_can_open_the_files_of_a_uri_with_options(tmp_path: Path) -> None:
    store = ParquetStore(f"file://{tmp_path}/store?use_mmap=true")
    store.describe(HELD)
    fill(store, range(3), Snapshots(size=1))
    files = store.files()
    assert [pq.read_table(file).num_rows for file in files] == [1, 2, 3]
    found = duckdb.connect().sql("SELECT id FROM read_parquet($files)", params={"files": files}).fetchall()
    assert sorted(id for (id,) in found) == read_ids(store)


def test_messages_show_no_password_of_a_uri() -> None:
    store = ParquetStore("s3://key:secret@bucket/pairs?region=eu-west-1")
    assert store.name == "s3://bucket/pairs"
    assert repr(store) == "ParquetStore(path='s3://bucket/pairs')"


@pytest.mark.parametrize("uri", ["s3://key:secret@bucket/pairs", "s3://bucket/pairs?region=eu-west-1"])
def test_a_delta_table_is_refused_where_deltalake_would_ignore_the_access(uri: str) -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*s3://bucket/pairs has.*AWS_ENDPOINT_URL") as error:
        DeltaStore(uri)
    assert "secret" not in str(error.value)
