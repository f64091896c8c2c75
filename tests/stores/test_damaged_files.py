"""Results in files that are lost or damaged: every reader gets an error of the store and no other one."""

from pathlib import Path
from typing import Any

import pytest

import thetastream as th
from tests.support.service import connect
from tests.support.stores import EMBEDDED, HELD, stage
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.folder import Folder
from thetastream.results import recent
from thetastream.results.recent import Recent
from thetastream.results.staged import Staged
from thetastream.stores import ParquetStore, parquet, parquet_files
from thetastream.stores.parquet_files import check_tail


@pytest.fixture(params=EMBEDDED)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> th.ParquetStore:
    made: th.ParquetStore = EMBEDDED[request.param](str(tmp_path / "pairs"))
    made.describe(HELD)
    for epoch in range(3):
        made.commit("q", epoch, stage(made, epoch, epoch))
    return made


@pytest.mark.parametrize("capacity", [recent.CAPACITY, 0])
@pytest.mark.parametrize("content", [None, b"PAR1 no file of Parquet PAR1", b""])
def test_a_file_that_cannot_be_read_is_an_error_of_the_store(
    store: th.ParquetStore, monkeypatch: pytest.MonkeyPatch, capacity: int, content: bytes | None
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    monkeypatch.setattr(parquet, "RECENT", Recent(capacity))
    file = Path(store.files()[1])
    file.unlink()
    if content is not None:
        file.write_bytes(content)

    def subscribe() -> Any:
        return list(th.subscribe(store, patience="0s"))

    for read in (store.read, lambda: store.read_snapshot(2), lambda: store.read(key={"id": 1}), subscribe):
        with pytest.raises(StoreError, match=rf"STORE_DAMAGED.*{file.name}"):
            read()
    assert store.read_snapshot(3).num_rows == 1
    with pytest.raises((QueryError, StoreError), match=f"(STORE_DAMAGED|STORE_QUERY).*{file.name}"):
        th.query(store, "SELECT sum(id) FROM results")
    with connect(store) as client:
        for answer in (
            client.get("/stores/pairs/snapshots/2"),
            client.post("/stores/pairs/query", json={}),
        ):
            assert (answer.status_code, answer.json()["condition"]) == (500, "STORE_DAMAGED")
        assert client.get("/stores/pairs/snapshots/3").status_code == 200
        with client.stream("GET", "/stores/pairs/subscribe", params={"since": 1}) as events:
            assert events.status_code == 200
            lines = list(events.iter_lines())
    assert lines[0] == "event: error"
    assert "STORE_DAMAGED" in lines[1]


def test_files_whose_place_does_not_answer_are_named(
    store: th.ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> Any:
        raise OSError("curlCode: 7, Couldn't connect to server")

    def lose_place(*arguments: Any) -> Any:
        """Let the place stop to answer between the log and the file."""
        monkeypatch.setattr(Folder, "read", fail)
        fail()

    monkeypatch.setattr(parquet, "RECENT", Recent())
    monkeypatch.setattr(parquet, "read_file", lose_place)
    assert store.answers()
    with pytest.raises(StoreError, match=r"STORE_UNREACHABLE.*pairs.*connect to server"):
        store.read()
    assert not store.answers()
    with connect(store) as client:
        assert client.get("/stores/pairs/snapshots/1").status_code == 503


def count_tails(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the names of files whose tails are read from now on."""
    tails: list[str] = []

    def check(folder: Folder, staged: Staged) -> bytes:
        tails.append(staged.name)
        return check_tail(folder, staged)

    monkeypatch.setattr(parquet_files, "check_tail", check)
    return tails


def test_metadata_of_more_files_than_are_kept_is_not_read_again_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    staged = [one for epoch in range(6) for one in stage(store, epoch, epoch)]
    folder, footers = Folder(store.path, ""), dict[Any, Any]()
    monkeypatch.setattr(parquet_files, "_FOOTERS", footers)
    monkeypatch.setattr(parquet_files, "KEPT_FOOTERS", 4)
    tails = count_tails(monkeypatch)
    numbers = []
    for asked in (staged, staged, staged[:4], staged[4:], staged[4:], staged):
        tails.clear()
        assert len(parquet_files.read_footers(folder, asked)) == len(asked)
        assert len(footers) <= 4
        numbers.append(len(tails))
    assert numbers == [6, 2, 0, 2, 0, 2]


def test_metadata_of_files_is_found_although_another_thread_empties_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    staged = [one for epoch in range(3) for one in stage(store, epoch, epoch)]
    folder = Folder(store.path, "")
    parquet_files.read_footers(folder, staged[:2])

    def check(folder: Folder, one: Staged) -> bytes:
        parquet_files._FOOTERS.clear()
        return check_tail(folder, one)

    monkeypatch.setattr(parquet_files, "check_tail", check)
    assert [one.num_rows for one in parquet_files.read_footers(folder, staged)] == [1, 1, 1]
