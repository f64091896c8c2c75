"""A store that is damaged says so: an answer is exact, or it is refused by an error of the store.

The named cases are damages that changed an answer without a word before entries had seals.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

import thetastream as th
from tests.support.store_damage import EXACT, REFUSED, damage_often, forget_all
from tests.support.stores import (
    BESIDE_OTHERS,
    EMBEDDED,
    HELD,
    NEEDS_SERVER,
    SCHEMA,
    commit_rows,
    fill,
    read_ids,
    stage,
)
from thetastream.core.errors import StoreError
from thetastream.results import recent, version_log
from thetastream.results.log import seal_entry
from thetastream.results.snapshots import EACH_EPOCH
from thetastream.stores import DeltaStore, ParquetStore, PostgresStore


@pytest.fixture(params=EMBEDDED)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ParquetStore:
    made: ParquetStore = EMBEDDED[request.param](str(tmp_path / "store"))
    made.describe(HELD)
    for epoch in range(15):
        made.commit("q", epoch, stage(made, epoch, epoch))
    forget_all()
    return made


def find_entry(store: ParquetStore, version: int) -> Path:
    return Path(store.path) / "_log" / f"{version:020}.json"


def test_a_gap_in_the_log_is_refused_by_readers_subscribers_and_writers(store: ParquetStore) -> None:
    """``read`` ended at epoch 6, a subscriber waited for ever, and a writer went on."""
    find_entry(store, 8).unlink()
    for call in (
        store.read,
        store.snapshots,
        lambda: list(th.subscribe(store, patience="0s")),
        lambda: th.query(store, "SELECT 1"),
        lambda: store.commit("q", 15, stage(store, 15, 15)),
        lambda: store.describe(HELD),
    ):
        forget_all()
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*00008.json must be as its commit.*gone"):
            call()


def test_a_reader_that_follows_the_log_finds_a_gap_too(store: ParquetStore) -> None:
    assert len(read_ids(store)) == 15
    for epoch in (15, 16, 17):
        store.commit("q", epoch, stage(store, epoch, epoch))
    find_entry(store, 17).unlink()
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*00017.json.*gone"):
        store.read()


@pytest.mark.parametrize("last", [14, 11, -1])
def test_the_last_entries_that_are_gone_are_missed(store: ParquetStore, last: int) -> None:
    """Readers saw an older state without a word."""
    for version in range(last + 1, 16):
        find_entry(store, version).unlink()
    for call in (
        store.read,
        store.snapshots,
        lambda: list(th.subscribe(store, patience="0s")),
        lambda: th.query(store, "SELECT 1"),
        lambda: store.sweep(grace_s=0),
        lambda: store.commit("q", 15, stage(store, 15, 15)),
        lambda: store.describe(HELD),
    ):
        forget_all()
        with pytest.raises(StoreError, match=rf"STORE_DAMAGED.*{last + 1:05}.json.*gone.*had entry 15"):
            call()
    forget_all()
    assert any("the log had entry 15" in problem for problem in store.verify().problems)


def test_a_reader_that_follows_the_log_misses_its_last_entries_too(store: ParquetStore) -> None:
    assert len(read_ids(store)) == 15
    for epoch in (15, 16, 17):
        store.commit("q", epoch, stage(store, epoch, epoch))
    for version in (17, 18):
        find_entry(store, version).unlink()
    version_log._NEWEST.clear()
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*00017.json.*gone.*had entry 18"):
        store.read()


@pytest.mark.parametrize("last", [None, 12])
def test_a_crash_between_an_entry_and_its_note_is_harmless(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, last: int | None
) -> None:
    """The note is not there, or names an older entry."""
    note = Path(store.path) / "_log" / version_log.NOTE_FILE
    if last is None:
        note.unlink()
    else:
        note.write_text(seal_entry(last, store.log.read(last)["seal"], {}))
    forget_all()
    assert store.verify().is_intact
    assert read_ids(store) == list(range(15))

    def crash(log: version_log.VersionLog, note: str) -> None:
        raise InterruptedError

    monkeypatch.setattr(version_log.VersionLog, "mark", crash)
    staged = stage(store, 15, 15)
    with pytest.raises(InterruptedError):
        store.commit("q", 15, staged)
    monkeypatch.undo()
    forget_all()
    assert not store.commit("q", 15, staged)
    assert store.commit("q", 16, stage(store, 16, 16))
    assert read_ids(store) == list(range(17))
    assert store.log.read_note() == 17


def test_a_damaged_note_is_refused(store: ParquetStore) -> None:
    note = Path(store.path) / "_log" / version_log.NOTE_FILE
    note.write_text(note.read_text().replace("15", "12"))
    with pytest.raises(
        StoreError, match=r"STORE_DAMAGED.*the note of the newest entry.*does not fit its seal"
    ):
        store.read()
    assert any("the note" in problem for problem in store.verify().problems)


@pytest.mark.parametrize("version", [0, 7, 15])
def test_an_entry_copied_over_another_is_refused(store: ParquetStore, version: int) -> None:
    shutil.copyfile(find_entry(store, 6), find_entry(store, version))
    with pytest.raises(
        StoreError, match=rf"STORE_DAMAGED.*it is entry 6, and this is the place of {version}"
    ):
        store.read()


def test_an_entry_of_another_store_is_refused(store: ParquetStore, tmp_path: Path) -> None:
    other = ParquetStore(str(tmp_path / "other"))
    other.describe(HELD)
    fill(other, range(9), EACH_EPOCH)
    shutil.copyfile(find_entry(other, 5), find_entry(store, 5))
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*00005.json.*does not continue entry 4"):
        store.read()


@pytest.mark.parametrize("name", ["../private/x.parquet", "inside/x.parquet", ".hidden.parquet"])
def test_a_log_that_names_a_file_outside_of_the_store_is_refused(store: ParquetStore, name: str) -> None:
    """It was followed. The entry has a right seal, and the file has the right rows."""
    entry, note = find_entry(store, 15), Path(store.path) / "_log" / version_log.NOTE_FILE
    values = json.loads(entry.read_text())
    (part,) = values["staged"]
    place = Path(store.path, name)
    place.parent.mkdir(exist_ok=True)
    shutil.copy(Path(store.path, part["name"]), place)
    kept = {
        key: value for key, value in values.items() if key not in ("format", "version", "previous", "seal")
    }
    kept["staged"] = [{**part, "name": name}]
    entry.write_text(seal_entry(15, values["previous"], kept))
    note.write_text(seal_entry(15, json.loads(entry.read_text())["seal"], {}))
    forget_all()
    for call in (store.read, store.snapshots, store.files):
        with pytest.raises(StoreError, match=rf"STORE_DAMAGED.*names '{name}'"):
            call()
    assert any(name in problem for problem in store.verify().problems)


def test_a_digit_of_the_last_epoch_is_refused(store: ParquetStore) -> None:
    """The next epoch was dropped, or one was doubled."""
    entry = find_entry(store, 15)
    text = entry.read_text()
    assert '"epoch": 14' in text
    entry.write_text(text.replace('"epoch": 14', '"epoch": 15'))
    for call in (store.read, lambda: store.commit("q", 15, stage(store, 15, 15))):
        forget_all()
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*content does not fit its seal"):
            call()


@pytest.mark.parametrize("capacity", [recent.CAPACITY, 0])
@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_file_copied_over_another_is_refused(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, capacity: int, is_read_before: bool
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    files = store.files()
    if is_read_before and not capacity:
        assert store.read(key={"id": 4}).num_rows == 1
    shutil.copyfile(files[3], files[4])
    for call in (store.read, lambda: store.read(key={"id": 4}), lambda: store.read_snapshot(5)):
        with pytest.raises(StoreError, match=rf"STORE_DAMAGED.*{Path(files[4]).name}"):
            call()
    assert store.read_snapshot(4)["id"].to_pylist() == [3]


@pytest.mark.parametrize("capacity", [recent.CAPACITY, 0])
def test_a_flipped_bit_of_a_page_is_a_damage_and_no_place_that_does_not_answer(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch, capacity: int
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    ids = pa.array(range(10_000), pa.int64())
    columns = [ids, pa.nulls(10_000, SCHEMA.field("a").type), pa.nulls(10_000, SCHEMA.field(2).type)]
    commit_rows(store, 15, HELD, pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    file = Path(store.files()[15])
    data = bytearray(file.read_bytes())
    data[20_000] ^= 16
    file.write_bytes(data)
    with pytest.raises(StoreError, match=rf"STORE_DAMAGED.*{file.name if capacity else ''}"):
        store.read()


def test_entries_of_an_earlier_version_of_thetastream_are_refused_by_one_sentence(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    (tmp_path / "_log").mkdir()
    find_entry(store, 0).write_text(json.dumps({"format": 1, "version": 0, "id": "x", "description": {}}))
    with pytest.raises(StoreError, match=r"STORE_FORMAT.*an earlier version of Thetastream wrote it"):
        store.read()


def test_a_description_that_is_gone_is_a_damage_and_not_a_new_store(store: ParquetStore) -> None:
    find_entry(store, 0).unlink()
    for call in (store.read, lambda: store.describe(HELD)):
        forget_all()
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*00000.json"):
            call()


def test_verify_tells_all_damages_at_once(store: ParquetStore) -> None:
    fill(store, range(15, 20), EACH_EPOCH)
    found = store.verify()
    assert (found.is_intact, found.entries, found.snapshots) == (True, 20, 20)
    assert (found.parts, found.rows) == (20, len(read_ids(store)))
    files = [Path(file) for file in store.files()]
    files[2].unlink()
    files[9].write_bytes(files[9].read_bytes()[:-1])
    damaged = store.verify().problems
    assert {files[2].name, files[9].name} == set(re.findall(r"part-[^ /]+parquet", str(damaged)))
    shutil.copyfile(find_entry(store, 6), find_entry(store, 7))
    find_entry(store, 12).unlink()
    forget_all()
    found = store.verify()
    assert not found.is_intact
    assert any("00007.json" in one for one in found.problems)
    assert any("12 to 12" in one for one in found.problems)


def test_a_store_that_is_not_there_has_no_damages(tmp_path: Path, store: ParquetStore) -> None:
    with pytest.raises(StoreError, match="NO_STORE"):
        ParquetStore(tmp_path / "nowhere").verify()
    shutil.rmtree(Path(store.path) / "_log")
    with pytest.raises(StoreError, match="NO_STORE"):
        store.verify()


def test_verify_compares_the_delta_table_with_the_log(tmp_path: Path) -> None:
    store = DeltaStore(str(tmp_path / "store"))
    store.describe(HELD)
    fill(store, range(4), EACH_EPOCH)
    told = store.open_table().history(1)[0]
    assert told["thetastream.seal"] == store.log.read(4)["seal"]
    for file in (tmp_path / "store" / "_delta_log").glob("*.json"):
        file.write_text(file.read_text().replace("part-", "tart-"))
    problems = store.verify().problems
    assert any("Delta table" in one for one in problems)


@NEEDS_SERVER
def test_damage_in_a_database_is_found(database: str) -> None:
    import psycopg

    store = PostgresStore(database, "damaged")
    store.describe(HELD)
    fill(store, range(6), EACH_EPOCH)
    assert store.verify().is_intact
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE damaged SET id = id + 100 WHERE thetastream_version = 3")
    (problem,) = store.verify().problems
    assert "a value is altered" in problem
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM damaged WHERE thetastream_version = 5")
    assert len(store.verify().problems) == 2
    with pytest.raises(StoreError, match="STORE_DAMAGED"):
        store.read()
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM damaged_commits WHERE version = 4")
    forget_all()
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 4 of the log.*it is gone, and entry 5"):
        store.read()
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM damaged_commits WHERE version >= 4")
    forget_all()
    for call in (store.read, lambda: store.commit("q", 6, stage(store, 6, 6))):
        with pytest.raises(StoreError, match=r"STORE_DAMAGED.*entry 4 of the log.*gone.*had entry 6"):
            call()


def count_damages(kind: type[ParquetStore], folder: Path, rounds: int, seed: int) -> Counter[str]:
    """Damage a store in every way, and check that it gives no other answer. Count what happened."""
    counted = Counter[str]()
    for case in damage_often(kind, folder, range(rounds), seed):
        for way, outcome in case.outcomes.items():
            counted[outcome] += 1
            assert outcome == EXACT or outcome in REFUSED, (case, way)
    return counted


@pytest.mark.parametrize(("kind", "capacity"), [("parquet", 0), ("delta", recent.CAPACITY)])
def test_damages_change_no_answer_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, capacity: int
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    counted = count_damages(EMBEDDED[kind], tmp_path, rounds=12, seed=1)
    assert counted["exact"] > 0
    assert counted["STORE_DAMAGED"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [recent.CAPACITY, 0])
@pytest.mark.parametrize("kind", EMBEDDED)
def test_thousands_of_damages_change_no_answer_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, capacity: int
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    print(kind, capacity, count_damages(EMBEDDED[kind], tmp_path, rounds=1500, seed=7))


def test_a_second_checkpoint_is_refused(store: ParquetStore) -> None:
    """It doubled all rows: 11,588 for 5,996."""
    staged = stage(store, 0, 0, query="again")
    with pytest.raises(StoreError, match=r"STORE_IN_USE.*would add all of them twice"):
        store.commit("again", 0, staged)
    assert read_ids(store) == list(range(15))
    assert store.commit("again", 0, staged, writer=BESIDE_OTHERS)


def test_the_parts_of_a_store_that_no_reader_needs_are_no_damage(store: ParquetStore) -> None:
    (Path(store.path) / "part-q-000099-0-0123456789ab.parquet").write_bytes(b"torn")
    assert store.verify().is_intact
    assert read_ids(store) == list(range(15))
