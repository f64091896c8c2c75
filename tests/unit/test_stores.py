"""Stores: epochs are committed once, what failed is swept, and readers see what commits name."""

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.postgres import find_server, run_server
from thetastream.errors import QueryError, StoreError
from thetastream.stores import REGISTRY, DeltaStore, ParquetStore, PostgresStore, Store
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
NUMBERS = count()
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


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with run_server() as address:
        yield address


EMBEDDED = {"parquet": ParquetStore, "delta": DeltaStore}
NEEDS_SERVER = pytest.mark.skipif(find_server() is None, reason="PostgreSQL is not installed")
KINDS = [pytest.param(kind, marks=() if kind in EMBEDDED else NEEDS_SERVER) for kind in REGISTRY]


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param in EMBEDDED:
        made: Store = EMBEDDED[request.param](str(tmp_path / "store"))
    else:
        made = PostgresStore(request.getfixturevalue("database"), f"results{next(NUMBERS)}")
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


def test_a_delta_table_has_each_commit_once(tmp_path: Path) -> None:
    store = DeltaStore(str(tmp_path))
    store.describe(HELD)
    store.commit("q", 0, stage(store, 0, 1, 2))
    # A crash comes between the commit of the store and that of the table.
    ParquetStore(store.path).commit("q", 1, stage(store, 1, 3))
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert not store.commit("q", 1, stage(store, 1, 3))
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
    version = store.open_table().version()
    store.describe(HELD)
    assert store.open_table().version() == version
    table = store.open_table().to_pyarrow_table()
    assert sorted(row["a"]["symbol"] for row in table.to_pylist()) == ["s0", "s1", "s2"]


def test_two_writers_of_a_delta_table_add_each_commit_once(tmp_path: Path) -> None:
    store = DeltaStore(str(tmp_path))
    store.describe(HELD)

    def write(query: str, first: int) -> None:
        for epoch in range(8):
            store.commit(query, epoch, stage(store, epoch, first + epoch, query=query))

    writers = [threading.Thread(target=write, args=(query, first)) for query, first in (("q", 0), ("p", 20))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = [*range(8), *range(20, 28)]
    assert read_ids(store) == expected
    assert sorted(store.open_table().to_pyarrow_table()["id"].to_pylist()) == expected


@NEEDS_SERVER
def test_a_table_of_postgres_has_all_types_and_nothing_that_is_staged(database: str) -> None:
    import psycopg

    columns = {
        "n": pa.array([1, None], pa.int16()),
        "x": pa.array([float("nan"), -1.5]),
        "d": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "ok": pa.array([True, None]),
        "text": pa.array(["", 'a "quoted", line\nand more']),
        "raw": pa.array([b"\x00\xff", None]),
        "day": pa.array([date(2026, 1, 5), None]),
        "local": pa.array([datetime(2026, 1, 5, 9), None], pa.timestamp("us")),
        "at": pa.array([START, None], pa.timestamp("us", "UTC")),
        "tags": pa.array([["a", None], []]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        "inner": pa.array(
            [{"at": START, "x": float("inf"), "d": Decimal("2.5")}, None],
            pa.struct([("at", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("d", pa.decimal128(5, 1))]),
        ),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    store, held = PostgresStore(database, 'odd "name"'), Description(rows.schema, "at", ("n", "inner.x"))
    store.describe(held)
    opened = store.open_stage(Origin("q", 0, "0"), held)
    opened.add(rows)
    staged = opened.close()
    assert staged is not None
    with psycopg.connect(database) as connection:
        count_rows = 'SELECT count(*) FROM "odd ""name"""'
        assert connection.execute(count_rows).fetchone() == (0,)
        store.commit("q", 0, [staged])
        connection.commit()
        assert connection.execute(count_rows).fetchone() == (2,)
    found = store.read().to_pylist()
    expected = pa.Table.from_batches([rows]).to_pylist()
    assert str(found) == str(expected)  # as texts, because NaN is not equal to itself
    assert store.read(key={"inner.x": (1e9, None)}).num_rows == 1
    assert "tests@" not in repr(store)
