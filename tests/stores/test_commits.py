"""Commits: each epoch is committed once, also by two writers, and what failed is swept."""

import threading

import pyarrow as pa
import pytest

from tests.support.stores import BESIDE_OTHERS, HELD, make_rows, read_ids, stage
from thetastream.core.errors import StoreError
from thetastream.core.folder import Folder
from thetastream.results.snapshots import Snapshots
from thetastream.results.staged import Origin
from thetastream.results.store import Store
from thetastream.stores import DeltaStore, ParquetStore, parquet_files


def test_an_epoch_that_runs_again_adds_nothing(store: Store) -> None:
    assert read_ids(store) == []
    assert store.commit("q", 0, [*stage(store, 0, 1, 2), *stage(store, 0, 3, task="1")])
    assert not store.commit("q", 0, [*stage(store, 0, 1, 2), *stage(store, 0, 3, task="1")])
    assert store.commit("q", 1, stage(store, 1))
    assert store.commit("q", 2, stage(store, 2, 9))
    assert not store.commit("q", 2, stage(store, 2, 9))
    assert read_ids(store) == [1, 2, 3, 9]


def test_a_query_that_continues_from_an_old_checkpoint_is_refused(store: Store) -> None:
    for epoch in range(3):
        store.commit("q", epoch, stage(store, epoch, epoch))
    with pytest.raises(StoreError, match=r"STORE_AHEAD.*up to 2.*runs epoch 1"):
        store.commit("q", 1, stage(store, 1, 7))
    assert store.commit("other", 0, stage(store, 0, 8, query="other"), writer=BESIDE_OTHERS)
    assert read_ids(store) == [0, 1, 2, 8]


def test_what_failed_is_swept_and_a_running_epoch_is_not(store: Store) -> None:
    stage(store, 0, 1)  # an attempt that failed
    store.commit("q", 0, stage(store, 0, 1))
    running = stage(store, 1, 2)
    stage(store, 0, 5, query="other")
    assert store.sweep() == 1
    assert store.sweep() == 0
    store.commit("q", 1, running)
    assert read_ids(store) == [1, 2]


def test_two_queries_write_to_one_store_at_the_same_time(store: Store) -> None:
    rule = Snapshots(size=3)

    def write(query: str, first: int) -> None:
        for epoch in range(8):
            assert store.commit(
                query, epoch, stage(store, epoch, first + epoch, query=query), rule, writer=BESIDE_OTHERS
            )

    writers = [threading.Thread(target=write, args=(query, first)) for query, first in (("q", 0), ("p", 20))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not store.commit("q", 7, stage(store, 7, 7), rule)
    assert read_ids(store) == [*range(8), *range(20, 28)]
    snapshots = store.snapshots()
    assert [one.number for one in snapshots] == [1, 2, 3, 4]
    for query, first in (("q", 0), ("p", 20)):
        found = [
            sorted(store.read_snapshot(one)["id"].to_pylist()) for one in snapshots if one.query == query
        ]
        assert found == [[first, first + 1, first + 2], [first + 3, first + 4, first + 5]]
    if isinstance(store, DeltaStore):
        assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == read_ids(store)


def test_an_attempt_that_stops_in_the_middle_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_files, "GROUP_ROWS", 1000)
    torn = store.open_stage(Origin("q", 0, "0"), HELD)
    rows = pa.concat_batches([make_rows(*range(60))] * 50)
    torn.add(rows)
    del torn
    store.commit("q", 0, stage(store, 0, 1))
    assert read_ids(store) == [1]
    store.sweep()
    assert read_ids(store) == [1]
    if isinstance(store, ParquetStore):
        files = (name for name in Folder(store.path, "").list_files() if name.endswith(".parquet"))
        assert [f"{store.path}/{name}" for name in files] == store.files()
