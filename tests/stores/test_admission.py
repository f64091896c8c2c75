"""Which epochs a store takes: those of a checkpoint that fits the store, and no copy of it."""

import json
import os
from pathlib import Path

import pytest

from tests.support.stores import HELD, read_ids, stage
from thetastream.core.errors import StoreError
from thetastream.core.folder import Folder
from thetastream.results.snapshots import Snapshots
from thetastream.results.store import Store
from thetastream.results.writer import FORKED_AT, PARTITIONS, Writer
from thetastream.stores import DeltaStore, ParquetStore


def write_epoch(
    checkpoint: Path, epoch: int, *files: str, number: int | None = None, partitions: int = 2, began: int = 0
) -> None:
    """Write the offsets of an epoch as Spark does, of a source of files and of a topic."""
    for folder in ("offsets", "sources/0"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    number = epoch if number is None else number
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": began, "conf": {PARTITIONS: str(partitions)}}
    lines = ["v1", json.dumps(metadata), json.dumps({"logOffset": number}), '{"topic":{"0":7}}']
    (checkpoint / "offsets" / str(epoch)).write_text("\n".join(lines))
    read = [json.dumps({"path": file, "timestamp": 1, "batchId": number}) for file in files]
    (checkpoint / "sources/0" / str(number)).write_text("\n".join(["v1", *read]))


def commit(store: Store, checkpoint: Path, epoch: int) -> bool:
    return store.commit("q", epoch, stage(store, epoch, epoch), writer=Writer(str(checkpoint)))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for epoch in range(3):
        write_epoch(tmp_path / "checkpoint", epoch, f"{epoch}.json")
    return tmp_path / "checkpoint"


def test_an_epoch_with_the_same_input_runs_again_at_any_time(store: Store, checkpoint: Path) -> None:
    assert commit(store, checkpoint, 0)
    write_epoch(checkpoint, 0, "0.json", began=99)
    assert not commit(store, checkpoint, 0)
    assert commit(store, checkpoint, 1)
    assert read_ids(store) == [0, 1]


def test_an_epoch_with_other_files_under_the_same_number_is_refused(
    store: Store, checkpoint: Path, tmp_path: Path
) -> None:
    """The offset of a source of files is only a number. 3,395 of 5,243 rows were lost."""
    for epoch in range(3):
        assert commit(store, checkpoint, epoch)
    copy = tmp_path / "copy"
    write_epoch(copy, 2, "2.json", "3.json")
    with pytest.raises(StoreError, match=r"STORE_AHEAD.*other input.*the query runs from .*copy"):
        commit(store, copy, 2)
    with pytest.raises(StoreError, match=r"STORE_AHEAD.*up to 2.*epoch 1.*copy: one of the two is a copy"):
        commit(store, copy, 1)
    assert read_ids(store) == [0, 1, 2]


def test_a_store_that_lacks_an_epoch_is_refused(store: Store, checkpoint: Path) -> None:
    assert commit(store, checkpoint, 0)
    with pytest.raises(StoreError, match=r"STORE_BEHIND.*up to 0.*runs epoch 2.*epoch 1 would be missing"):
        commit(store, checkpoint, 2)


def test_a_new_store_under_an_old_checkpoint_is_refused(store: Store, checkpoint: Path) -> None:
    with pytest.raises(StoreError, match=r"STORE_BEHIND.*no epoch of the query.*runs epoch 2"):
        commit(store, checkpoint, 2)


def test_a_stopped_query_whose_store_lacks_an_epoch_does_not_start(store: Store, checkpoint: Path) -> None:
    """Without new input it would run no epoch, and end without a word beside an empty store."""
    writer = Writer(str(checkpoint))
    store.admit(writer)
    (checkpoint / "metadata").write_text('{"id": "q"}')
    (checkpoint / "commits").mkdir()
    for epoch in range(2):
        (checkpoint / "commits" / str(epoch)).write_text("v1")
        (checkpoint / "commits" / f".{epoch}.crc").write_text("")
    with pytest.raises(StoreError, match=r"STORE_BEHIND.*no epoch of the query.*epoch 0 would be missing"):
        store.admit(writer)
    assert commit(store, checkpoint, 0)
    with pytest.raises(StoreError, match=r"STORE_BEHIND.*up to 0 of the query.*epoch 1 would be missing"):
        store.admit(writer)
    # An epoch that only gave the state other partitions has reached no sink.
    write_epoch(checkpoint, 1, "0.json", number=0, partitions=3)
    store.admit(writer)
    # A fork has its state from the epochs of another query.
    (checkpoint / "metadata").write_text('{"id": "fork"}')
    (checkpoint / FORKED_AT).write_text(json.dumps({"query": "q", "epoch": 1}))
    Writer(str(checkpoint))
    store.admit(Writer(str(checkpoint)))


def test_an_epoch_that_only_changes_the_partitions_is_not_missed(store: Store, checkpoint: Path) -> None:
    assert commit(store, checkpoint, 0)
    write_epoch(checkpoint, 1, "0.json", number=0, partitions=3)
    assert commit(store, checkpoint, 2)


def test_a_fork_takes_the_place_of_the_old_query(store: Store, checkpoint: Path, tmp_path: Path) -> None:
    rule = Snapshots(size=3)

    def add(query: str, writer: Writer, epoch: int) -> bool:
        return store.commit(query, epoch, stage(store, epoch, epoch), rule, writer=writer)

    old, new, other = Writer(str(checkpoint)), Writer(str(tmp_path / "new")), Writer(str(tmp_path / "other"))
    for epoch in range(2):
        assert add("q", old, epoch)
    for name, epoch in (("new", 1), ("other", 0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / FORKED_AT).write_text(json.dumps({"query": "q", "epoch": epoch}))
    # A fork of an earlier epoch would repeat pairs. That of the last epoch continues the snapshot.
    with pytest.raises(StoreError, match=r"STORE_AHEAD.*up to 1 of the old query.*begins after epoch 0"):
        add("other", other, 1)
    assert add("fork", new, 2)
    assert not add("fork", new, 2)
    (snapshot,) = store.snapshots()
    assert (snapshot.rows, snapshot.query, read_ids(store)) == (3, "fork", [0, 1, 2])
    # Nobody else may follow: neither the old query nor another fork of it.
    for query, writer in (("q", old), ("other", other)):
        with pytest.raises(StoreError, match=r"STORE_IN_USE.*a fork has taken the place"):
            add(query, writer, 2)
    with pytest.raises(StoreError, match="STORE_IN_USE"):
        store.admit(other)


def test_a_checkpoint_that_cannot_be_read_changes_nothing(store: Store, tmp_path: Path) -> None:
    for epoch in range(2):
        assert commit(store, tmp_path / "nowhere", epoch)
        assert not commit(store, tmp_path / "nowhere", epoch)


@pytest.mark.parametrize("kind", [ParquetStore, DeltaStore])
def test_files_are_on_the_disk_before_the_entry_and_the_entry_before_it_counts(
    kind: type[ParquetStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, flush, fsync = kind(str(tmp_path / "store")), Folder.flush, os.fsync
    store.describe(HELD)
    flushed: list[tuple[str, bool]] = []
    n_calls = 0

    def note(folder: Folder, path: str = "") -> None:
        entry = tmp_path / "store" / "_log" / f"{1:020}.json"
        flushed.append((Path(path or folder.locate("")).name, entry.exists()))
        flush(folder, path)

    def count(number: int) -> None:
        nonlocal n_calls
        n_calls += 1
        fsync(number)

    monkeypatch.setattr(Folder, "flush", note)
    monkeypatch.setattr(os, "fsync", count)
    (staged,) = stage(store, 0, 1)
    store.commit("q", 0, [staged])
    assert flushed[:2] == [(staged.name, False), ("store", False)]
    assert (flushed[2][0].startswith(f".{1:020}.json"), flushed[2][1]) == (True, False)
    assert flushed[3] == ("_log", True)
    # The note of the newest entry follows, which only tells that the entry exists.
    assert (flushed[4][0].startswith(".newest.json"), flushed[4][1]) == (True, True)
    assert n_calls == len(flushed) == (6 if kind is ParquetStore else 8)
