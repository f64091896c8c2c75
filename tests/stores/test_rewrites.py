"""Rewrites: merged files hold the same results, and forgotten snapshots are gone."""

import json
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.stores import BESIDE_OTHERS, HELD, fill, read_ids, stage
from thetastream.app.cli import main
from thetastream.core.errors import QueryError
from thetastream.core.folder import Folder
from thetastream.results import history, version_log
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.results.store import Store
from thetastream.stores import DeltaStore, ParquetStore, parquet


def test_merged_files_hold_the_same_snapshots(store: Store) -> None:
    rule = Snapshots(every="2 minutes")
    fill(store, range(20), rule)
    snapshots = store.snapshots()
    each = [store.read_snapshot(one)["id"].to_pylist() for one in snapshots]
    until = [read_ids(store, snapshot=one) for one in snapshots]
    by_key, everything = read_ids(store, key={"a.symbol": "s1"}), read_ids(store)
    if not isinstance(store, ParquetStore):
        assert store.compact() == 0
    if isinstance(store, ParquetStore):
        before = store.files()
        assert store.compact(target=7000) >= 10
        assert len(store.files()) < len(before) / 2
        assert store.compact(target=7000) == 0
        # A reader that has listed the small files can still read them for an hour.
        assert store.sweep() == 0
        assert store.sweep(grace_s=0) == len(before) - sum(file in before for file in store.files())
    assert [sorted(store.read_snapshot(one)["id"].to_pylist()) for one in snapshots] == list(
        map(sorted, each)
    )
    assert [read_ids(store, snapshot=one) for one in snapshots] == until
    assert (read_ids(store, key={"a.symbol": "s1"}), read_ids(store)) == (by_key, everything)
    # The query goes on, and a process that has read nothing yet begins with the state of the log.
    fill(store, range(19, 30), rule)
    history._KNOWN.clear()
    assert read_ids(store) == sorted(id for epoch in range(30) for id in [epoch] * (1 + epoch % 3))
    assert store.snapshots()[: len(snapshots)] == snapshots
    assert [one.number for one in store.snapshots()] == list(range(1, len(store.snapshots()) + 1))
    if isinstance(store, DeltaStore):
        table = store.open_table().to_pyarrow_table()
        assert sorted(table["id"].to_pylist()) == read_ids(store)


def test_forgotten_snapshots_are_gone_and_the_others_stay(store: Store) -> None:
    rule = Snapshots(every="2 minutes")
    fill(store, range(20), rule)
    numbers = [one.number for one in store.snapshots()]
    gone, everything = read_ids(store, snapshot=4), read_ids(store)
    assert store.forget(before=5) == 4
    assert store.forget(before=5) == 0
    rest = list((Counter(everything) - Counter(gone)).elements())
    assert read_ids(store) == rest
    assert [one.number for one in store.snapshots()] == numbers[4:]
    with pytest.raises(QueryError, match=r"UNKNOWN_SNAPSHOT.*5 to"):
        store.read(snapshot=4)
    fill(store, range(19, 24), rule)
    history._KNOWN.clear()
    assert store.snapshots()[-1].number == numbers[-1] + 2
    if isinstance(store, ParquetStore):
        store.compact(target=3000)
        store.forget(before=store.snapshots()[-2])
        assert sorted(
            row for table in (pq.read_table(f) for f in store.files()) for row in table["id"].to_pylist()
        ) == (read_ids(store))
    if isinstance(store, DeltaStore):
        assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == read_ids(store)


def test_upkeep_keeps_a_span_of_results_and_few_files(store: Store) -> None:
    rule = Snapshots(every="2 minutes")
    fill(store, range(20), rule)
    newest, everything = store.snapshots()[-1], read_ids(store)
    done = store.upkeep(grace_s=0)
    assert (done.forgotten, read_ids(store)) == (0, everything)
    fill(store, range(20, 40), rule)
    snapshots = store.snapshots()
    oldest_us = snapshots[-1].at_us - 12 * 60 * 10**6
    wanted = [one.number for one in snapshots if one.at_us >= oldest_us]
    done = store.upkeep(timedelta(minutes=12), grace_s=0)
    numbers = [one.number for one in store.snapshots()]
    assert done.forgotten == len(snapshots) - len(numbers) > 0
    assert numbers == wanted
    fill(store, range(40, 60), rule)
    store.upkeep("12 minutes", grace_s=0)
    assert store.snapshots()[0].number > newest.number
    assert store.verify().is_intact
    if isinstance(store, ParquetStore):
        assert len(store.files()) <= 4


def test_results_are_forgotten_behind_a_merge(store: Store) -> None:
    fill(store, range(20), EACH_EPOCH)
    each = {one.number: read_ids(store, snapshot=one) for one in store.snapshots()}
    everything = read_ids(store)
    store.compact()
    assert store.forget(before=8) == 7
    assert read_ids(store) == sorted((Counter(everything) - Counter(each[7])).elements())
    assert [one.number for one in store.snapshots()] == list(range(8, 21))
    assert sorted(store.read_snapshot(8)["id"].to_pylist()) == sorted(
        (Counter(each[8]) - Counter(each[7])).elements()
    )
    store.sweep(grace_s=0)
    assert store.verify().is_intact
    if isinstance(store, DeltaStore):
        assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == read_ids(store)


def test_a_store_that_is_merged_often_has_few_files_and_writes_rows_few_times(tmp_path: Path) -> None:
    store, written = ParquetStore(str(tmp_path / "pairs")), 0
    store.describe(HELD)
    for epoch in range(60):
        store.commit("q", epoch, stage(store, epoch, epoch % 60), EACH_EPOCH)
        before = {one.staged.name: one.staged.rows for one in store.read_history().held}
        store.upkeep(grace_s=0)
        after = Counter[str]()
        for one in store.read_history().held:
            after[one.staged.name] += one.staged.rows
        written += sum(rows for name, rows in after.items() if name not in before)
        assert len(after) <= 8
    assert read_ids(store) == list(range(60))
    assert written <= 60 * 7


def test_merged_files_end_after_many_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_PIECES", 8)
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    fill(store, range(30), EACH_EPOCH)
    store.compact()
    assert [pq.ParquetFile(file).num_row_groups for file in store.files()] == [8, 8, 8, 6]
    assert store.compact() == 0


def test_the_command_looks_after_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ParquetStore(str(tmp_path / "pairs"))
    store.describe(HELD)
    fill(store, range(20), Snapshots(every="2 minutes"))
    assert main(["upkeep", store.path, "--keep", "6 minutes", "--grace", "0"]) == 0
    assert re.fullmatch(
        r"[1-9]\d* snapshots forgotten, [1-9]\d* files merged, .*", capsys.readouterr().out.strip()
    )
    assert main(["upkeep", store.path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"forgotten": 0, "merged": 0, "removed": 0}
    assert main(["upkeep", store.path, "--keep", "soon"]) == 1
    assert "INVALID_DURATION" in capsys.readouterr().err


@pytest.mark.parametrize("keep", ["soon", "0 seconds", "-1 day", 30])
def test_upkeep_refuses_what_is_no_span(store: Store, keep: Any) -> None:
    fill(store, range(3), Snapshots(every="2 minutes"))
    with pytest.raises(QueryError, match=r"INVALID_DURATION.*30 days"):
        store.upkeep(keep)


@pytest.mark.parametrize("number", [None, 3])
def test_a_reader_beside_forget_misses_no_row_that_is_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    fill(store, range(6), EACH_EPOCH)
    before, kind = store.read(snapshot=number), type(store.backend)
    open_staged, n_calls = kind.open, 0

    def forget_first(self: Any, *arguments: Any) -> Any:
        """Let another process forget snapshots after the reader has listed its rows."""
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            assert store.forget(before=3) == 2
        return open_staged(self, *arguments)

    monkeypatch.setattr(kind, "open", forget_first)
    found = sorted(store.read(snapshot=number)["id"].to_pylist())
    assert found in (sorted(before["id"].to_pylist()), read_ids(store, snapshot=number))
    assert found != []


def test_a_reader_follows_while_files_are_merged_and_the_log_is_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_log, "GRACE_S", -60)
    store, rule = ParquetStore(str(tmp_path / "store")), Snapshots(every="1 minute")
    store.describe(HELD)
    expected: list[int] = []
    sleeper = None
    for round_ in range(5):
        for epoch in range(10 * round_, 10 * round_ + 10):
            store.commit("q", epoch, stage(store, epoch, epoch), rule)
            expected.append(epoch)
        if round_ == 0:
            assert read_ids(store) == expected
            # This process reads no commit for some rounds.
            sleeper = dict(history._KNOWN)
            history._KNOWN.clear()
        assert store.compact(target=1 << 20) > 0
        assert read_ids(store) == expected
    assert not (tmp_path / "store" / "_log" / f"{5:020}.json").exists()
    assert sleeper is not None
    history._KNOWN.clear()
    history._KNOWN.update(sleeper)
    assert read_ids(store) == expected


def test_a_writer_that_was_stopped_in_a_commit_writes_no_version_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, append = ParquetStore(str(tmp_path)), version_log.VersionLog.append
    store.describe(HELD)
    fill(store, range(3), EACH_EPOCH)

    def wait(log: version_log.VersionLog, n: int, text: str, entry: dict[str, Any]) -> bool:
        """Let other processes commit and merge before the version is written."""
        monkeypatch.setattr(version_log.VersionLog, "append", append)
        for first in (3, 8, 13):
            fill(store, range(first, first + 5), EACH_EPOCH)
            assert store.compact() > 0
        return append(log, n, text, entry)

    monkeypatch.setattr(version_log.VersionLog, "append", wait)
    assert store.commit("p", 0, stage(store, 0, 59, query="p"), writer=BESIDE_OTHERS)
    expected = sorted([*(id for epoch in range(18) for id in [epoch] * (1 + epoch % 3)), 59])
    assert read_ids(store) == expected
    history._KNOWN.clear()
    version_log._NEWEST.clear()
    assert read_ids(store) == expected


def test_a_writer_finds_the_newest_version_while_old_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, has = ParquetStore(str(tmp_path)), version_log.VersionLog.has
    monkeypatch.setattr(version_log, "GRACE_S", -60)
    store.describe(HELD)
    fill(store, range(3), EACH_EPOCH)

    def remove_before(log: version_log.VersionLog, version: int) -> bool:
        """Let other processes commit, merge and remove what this one is about to look for."""
        if version == 4:
            monkeypatch.setattr(version_log.VersionLog, "has", has)
            for first in (3, 8, 13):
                fill(store, range(first, first + 5), EACH_EPOCH)
                assert store.compact() > 0
            assert not has(log, 3)
        return has(log, version)

    monkeypatch.setattr(version_log.VersionLog, "has", remove_before)
    assert store.commit("p", 0, stage(store, 0, 59, query="p"), writer=BESIDE_OTHERS)
    assert read_ids(store) == sorted([*(id for epoch in range(18) for id in [epoch] * (1 + epoch % 3)), 59])


def test_processes_that_merge_and_sweep_at_once_do_not_stop_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, remove = ParquetStore(str(tmp_path)), Folder.remove

    def remove_after_another(folder: Folder, name: str = "") -> None:
        remove(folder, name)
        remove(folder, name)

    monkeypatch.setattr(Folder, "remove", remove_after_another)
    monkeypatch.setattr(version_log, "GRACE_S", -60)
    store.describe(HELD)
    for first in (0, 5, 10):
        fill(store, range(first, first + 5), EACH_EPOCH)
        assert store.compact() > 0
        store.sweep(grace_s=0)
    assert read_ids(store) == sorted(id for epoch in range(15) for id in [epoch] * (1 + epoch % 3))


def test_the_first_commits_may_come_while_snapshots_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    read, is_first = ParquetStore.read_history, True

    def read_later(this: ParquetStore) -> history.History:
        """Let another process commit between the two steps with which ``forget`` reads the log."""
        nonlocal is_first
        if is_first:
            is_first = False
            fill(store, range(4), Snapshots(size=1))
        return read(this)

    monkeypatch.setattr(ParquetStore, "read_history", read_later)
    assert store.forget(before=3) == 2
    assert [one.number for one in store.snapshots()] == [3, 4]
