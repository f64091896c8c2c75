"""Stores that an earlier version wrote, kept in ``tests/fixtures``: they are read and continued as before.

Each has twelve epochs, a merge of them, a forgotten snapshot, four more epochs and an attempt that failed.
"""

import tarfile
from pathlib import Path

import pytest

from tests.support.store_damage import forget_all
from tests.support.stores import EMBEDDED, HELD, read_ids, stage
from thetastream.results.snapshots import Snapshots
from thetastream.stores import DeltaStore, ParquetStore

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "stores.tar.xz"
RULE = Snapshots(every="2 minutes")


@pytest.mark.parametrize("kind", EMBEDDED)
def test_a_store_of_an_earlier_version_continues(tmp_path: Path, kind: str) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    store: ParquetStore = EMBEDDED[kind](str(tmp_path / kind))
    held = sorted([0, *(one for one in range(1, 12) for _ in range(2)), 12, 12, 13, 14, 15])
    assert read_ids(store) == held
    assert read_ids(store, key={"id": (3, 4)}) == [3, 3, 4, 4]
    assert [one.number for one in store.snapshots()] == list(range(1, 8))
    assert store.verify().is_intact
    # The query starts again, and runs its last epoch once more.
    store.describe(HELD)
    assert not store.commit("q", 15, stage(store, 15, 15), RULE)
    assert store.sweep(grace_s=0) == 13
    assert store.commit("q", 16, stage(store, 16, 50), RULE)
    for _ in range(2):
        assert read_ids(store) == [*held, 50]
        assert [one.number for one in store.snapshots()] == list(range(1, 9))
        forget_all()
    assert store.compact() > 0
    assert store.verify().is_intact
    assert read_ids(store) == [*held, 50]
    if isinstance(store, DeltaStore):
        assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [*held, 50]
