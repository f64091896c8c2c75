"""Stores: epochs are committed once, what failed is swept, and readers see what commits name."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thetastream.errors import QueryError, StoreError
from thetastream.stores import REGISTRY, ParquetStore, Store
from thetastream.stores.description import Description
from thetastream.stores.snapshots import Snapshots
from thetastream.stores.staged import Origin, Staged

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.struct([("symbol", pa.string()), ("ts", pa.timestamp("us", "UTC"))])),
        ("result_time", pa.timestamp("us", "UTC")),
    ]
)
HELD = Description(SCHEMA, "result_time", ("a.symbol", "id"))
START = datetime(2026, 1, 5, 9, tzinfo=UTC)


def make_rows(*numbers: int) -> pa.RecordBatch:
    times = [START.replace(minute=number) for number in numbers]
    rows = [
        {"id": number, "a": {"symbol": f"s{number % 3}", "ts": time}, "result_time": time}
        for number, time in zip(numbers, times, strict=True)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def stage(store: Store, epoch: int, *numbers: int, query: str = "q", task: str = "0") -> list[Staged]:
    opened = store.open_stage(Origin(query, epoch, task), HELD)
    for number in numbers:
        opened.add(make_rows(number))
    staged = opened.close()
    return [] if staged is None else [staged]


def read_ids(store: Store, **asked: object) -> list[int]:
    return sorted(store.read(**asked)["id"].to_pylist())  # type: ignore[arg-type]


@pytest.fixture(params=list(REGISTRY))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = {"parquet": lambda: ParquetStore(str(tmp_path / "store"))}[request.param]()
    made.describe(HELD)
    return made


def test_an_epoch_that_runs_again_adds_nothing(store: Store) -> None:
    assert read_ids(store) == []
    assert store.commit("q", 0, [*stage(store, 0, 1, 2), *stage(store, 0, 3, task="1")])
    assert not store.commit("q", 0, [*stage(store, 0, 1, 2), *stage(store, 0, 3, task="1")])
    assert store.commit("q", 1, stage(store, 1))
    assert store.commit("q", 4, stage(store, 4, 9))
    assert not store.commit("q", 3, stage(store, 3, 7))
    assert read_ids(store) == [1, 2, 3, 9]


def test_what_failed_is_swept_and_a_running_epoch_is_not(store: Store) -> None:
    stage(store, 0, 1)  # an attempt that failed
    store.commit("q", 0, stage(store, 0, 1))
    running = stage(store, 1, 2)
    stage(store, 0, 5, query="other")
    assert store.sweep() == 1
    assert store.sweep() == 0
    store.commit("q", 1, running)
    assert read_ids(store) == [1, 2]


def test_two_queries_write_to_one_store(store: Store) -> None:
    for epoch in range(3):
        for query, first in (("q", 0), ("p", 10)):
            assert store.commit(query, epoch, stage(store, epoch, first + epoch, query=query))
    assert not store.commit("q", 2, stage(store, 2, 2))
    assert read_ids(store) == [0, 1, 2, 10, 11, 12]


def test_results_are_read_by_time_and_by_key(store: Store) -> None:
    for epoch in range(6):
        store.commit("q", epoch, stage(store, epoch, 2 * epoch, 2 * epoch + 1))
    everything = list(range(12))
    assert read_ids(store) == everything
    assert read_ids(store, since="2026-01-05 09:07") == everything[7:]
    assert read_ids(store, until=START.replace(minute=7)) == everything[:7]
    assert read_ids(store, since="2026-01-05T10:03+01:00", until="2026-01-05 09:05") == [3, 4]
    assert read_ids(store, key={"a.symbol": "s1"}) == [1, 4, 7, 10]
    assert read_ids(store, key={"id": (3, 8), "a.symbol": "s1"}) == [4, 7]
    assert read_ids(store, key={"id": (None, 2)}, since="2026-01-05 09:01") == [1, 2]
    assert store.read(key={"id": 4}).schema.equals(SCHEMA)


@pytest.mark.parametrize(
    ("asked", "condition"),
    [
        ({"key": {"ts": 1}}, "STORE_KEY"),
        ({"since": "soon"}, "BAD_VALUE"),
        ({"key": {"id": "x"}}, "BAD_VALUE"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(
    store: Store, asked: dict[str, object], condition: str
) -> None:
    with pytest.raises(QueryError) as error:
        store.read(**asked)  # type: ignore[arg-type]
    assert error.value.condition == condition


def test_other_columns_are_refused_by_name(store: Store) -> None:
    store.describe(HELD)
    other = Description(SCHEMA.remove(0).append(pa.field("n", pa.int32())), "result_time", ("a.symbol",))
    with pytest.raises(StoreError) as error:
        store.describe(other)
    assert error.value.condition == "STORE_SCHEMA"
    for words in ("'id' is int64 there and missing here", "'n' is missing there and int32 here", "key is"):
        assert words in str(error.value)
    assert store.description == HELD


def test_snapshots_are_read_by_number_and_by_time(store: Store) -> None:
    rule = Snapshots(every="2 minutes", size=5)
    for epoch, numbers in enumerate([(0,), (1,), (2,), (3, 3, 3, 3, 3), (3,), (7,), (7,)]):
        store.commit("q", epoch, stage(store, epoch, *numbers), rule)
    listed = [(one.number, one.at.minute, one.epochs, one.rows, one.reason) for one in store.snapshots()]
    assert listed == [(1, 2, (0, 2), 3, "every"), (2, 3, (3, 3), 5, "size"), (3, 6, (4, 5), 2, "every")]
    assert store.snapshots(after=2) == store.snapshots()[2:]
    assert [read_ids(store, snapshot=n) for n in (1, 2, 3)] == [
        [0, 1, 2],
        [0, 1, 2, *[3] * 5],
        [0, 1, 2, *[3] * 6, 7],
    ]
    assert read_ids(store) == [*read_ids(store, snapshot=3), 7]
    assert read_ids(store, snapshot="2026-01-05 09:05") == read_ids(store, snapshot=store.snapshots()[1])
    assert [sorted(store.read_snapshot(n)["id"].to_pylist()) for n in (1, 3)] == [[0, 1, 2], [3, 7]]
    assert read_ids(store, snapshot=3, since="2026-01-05 09:03", key={"id": 3}) == [3] * 6
    for unknown in (0, 4, "2026-01-05 09:01"):
        with pytest.raises(QueryError, match="UNKNOWN_SNAPSHOT"):
            store.read(snapshot=unknown)


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
