"""A store that was restored from a backup, and that makes other commits of the same numbers afterwards."""

import shutil
from pathlib import Path

import pytest

from tests.support.stores import EMBEDDED, HELD, NEEDS_SERVER, read_ids, stage
from thetastream.results import history
from thetastream.results.snapshots import EACH_EPOCH
from thetastream.results.store import Store
from thetastream.stores import PostgresStore


def sleep_while_others_commit(store: Store, epochs: range, first: int) -> None:
    """Commit epochs as another process does, so that this process does not learn of them."""
    known = dict(history._KNOWN)
    history._KNOWN.clear()
    for epoch in epochs:
        assert store.commit("q", epoch, stage(store, epoch, first + epoch), EACH_EPOCH)
    history._KNOWN.clear()
    history._KNOWN.update(known)


@pytest.mark.parametrize("is_compact", [False, True])
@pytest.mark.parametrize("kind", EMBEDDED)
def test_a_reader_mixes_no_commits_of_before_and_after(tmp_path: Path, kind: str, is_compact: bool) -> None:
    store, backup = EMBEDDED[kind](str(tmp_path / "store")), tmp_path / "backup"
    store.describe(HELD)
    sleep_while_others_commit(store, range(3), first=0)
    shutil.copytree(store.path, backup)
    sleep_while_others_commit(store, range(3, 6), first=0)
    if is_compact:
        store.compact()
    assert read_ids(store) == [0, 1, 2, 3, 4, 5]
    shutil.rmtree(store.path)
    shutil.copytree(backup, store.path)
    sleep_while_others_commit(store, range(3, 9), first=10)
    assert read_ids(store) == [0, 1, 2, 13, 14, 15, 16, 17, 18]
    assert [one.number for one in store.snapshots()] == list(range(1, 10))


@NEEDS_SERVER
def test_a_reader_of_a_database_mixes_no_commits_of_before_and_after(database: str) -> None:
    import psycopg

    store = PostgresStore(database, "restored")
    store.describe(HELD)
    sleep_while_others_commit(store, range(3), first=0)
    with psycopg.connect(database) as connection:
        for name in ("restored", "restored_commits"):
            connection.execute(f"CREATE TABLE backup_of_{name} AS TABLE {name}")
    sleep_while_others_commit(store, range(3, 6), first=0)
    assert read_ids(store) == [0, 1, 2, 3, 4, 5]
    with psycopg.connect(database) as connection:
        for name in ("restored", "restored_commits"):
            connection.execute(f"DELETE FROM {name}")
            connection.execute(f"INSERT INTO {name} TABLE backup_of_{name}")
    sleep_while_others_commit(store, range(3, 9), first=10)
    assert read_ids(store) == [0, 1, 2, 13, 14, 15, 16, 17, 18]
