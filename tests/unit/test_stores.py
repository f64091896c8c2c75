"""Stores: epochs are committed once, what failed is swept, and readers see what commits name."""

import multiprocessing
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import store_writer
from tests.support.postgres import find_server, run_server
from thetastream.core.folder import Folder
from thetastream.errors import QueryError, StoreError
from thetastream.stores import (
    REGISTRY,
    DeltaStore,
    ParquetStore,
    PostgresStore,
    Store,
    history,
    parquet_stage,
    read_store,
    version_log,
    write_store,
)
from thetastream.stores.description import Description
from thetastream.stores.snapshots import EACH_EPOCH, Brought, Ledger, Snapshots
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
    made = make_store(request.param, request, tmp_path)
    made.describe(HELD)
    return made


def make_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    if kind in EMBEDDED:
        return EMBEDDED[kind](str(folder / "store"))
    return PostgresStore(request.getfixturevalue("database"), f"results{next(NUMBERS)}")


@pytest.fixture
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return make_store(request.param, request, tmp_path)


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


def test_two_queries_write_to_one_store_at_the_same_time(store: Store) -> None:
    rule = Snapshots(size=3)

    def write(query: str, first: int) -> None:
        for epoch in range(8):
            assert store.commit(query, epoch, stage(store, epoch, first + epoch, query=query), rule)

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
        ({"key": {"id": None}}, "BAD_VALUE"),
        ({"key": {"id": 1.5}}, "BAD_VALUE"),
        ({"key": {"id": 1 << 70}}, "BAD_VALUE"),
        ({"key": {"a.symbol": "\ud800"}}, "BAD_VALUE"),
        ({"key": ["id"]}, "BAD_VALUE"),
    ],
)
def test_a_question_that_has_no_answer_is_refused(
    store: Store, asked: dict[str, object], condition: str
) -> None:
    with pytest.raises(QueryError) as error:
        store.read(**asked)  # type: ignore[arg-type]
    assert error.value.condition == condition


@pytest.mark.parametrize("per_epoch", [1, 8])
@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_keys_are_compared_as_in_spark(empty: Store, per_epoch: int) -> None:
    """NaN is equal to itself and greater than all numbers, -0.0 is 0.0, and NULL lies in no range."""
    nan, inf = float("nan"), float("inf")
    columns = {
        "id": pa.array(range(8), pa.int64()),
        "x": pa.array([1.0, nan, -0.0, 0.0, None, inf, -inf, 7.5]),
        "n": pa.array([2**53 + 1, 2**63 - 1, -(2**63), None, 2**53, 0, 1, 2], pa.int64()),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    held = Description(rows.schema, None, ("x", "n"))
    empty.describe(held)
    for epoch in range(8 // per_epoch):
        opened = empty.open_stage(Origin("q", epoch, "0"), held)
        opened.add(rows.slice(epoch * per_epoch, per_epoch))
        empty.commit("q", epoch, [opened.close()], clock_us=epoch)
    asked = {(5.0, None): [1, 5, 7], (None, 0.0): [2, 3, 6], (nan, None): [1], (2.0, nan): [1, 5, 7]}
    for key, wanted in {**asked, (None, nan): [0, 1, 2, 3, 5, 6, 7], nan: [1], 0.0: [2, 3]}.items():
        assert read_ids(empty, key={"x": key}) == wanted, key
    for key, wanted in {2**53 + 1: [0], (2**53, None): [0, 1, 4], (None, 0): [2, 5]}.items():
        assert read_ids(empty, key={"n": key}) == wanted, key


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


def test_a_torn_state_of_the_log_is_named_and_other_files_are_left_alone(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    for epoch in range(3):
        store.commit("q", epoch, stage(store, epoch, epoch))
    store.compact()
    (tmp_path / "_log" / "state-of-mind.json").write_text("{}")
    history._KNOWN.clear()
    assert read_ids(store) == [0, 1, 2]
    (state,) = (tmp_path / "_log").glob("state-0*.json")
    state.write_text(state.read_text()[:-9])
    history._KNOWN.clear()
    with pytest.raises(StoreError, match=r"STORE_DAMAGED.*state-0"):
        store.read()


def test_a_table_of_postgres_has_a_name_that_its_companions_extend() -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*1 to 51 bytes"):
        PostgresStore("postgresql:///results", "p" * 52)
    with pytest.raises(QueryError, match=r"BAD_VALUE.*percent sign"):
        PostgresStore("postgresql:///results", "growth%s")


@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_columns_may_have_any_name(empty: Store) -> None:
    names = ['say "x" %s', "growth%", "a.b", "it's", "Ä"]
    rows = pa.RecordBatch.from_arrays([pa.array([n, n + 1]) for n in range(5)], names=names)
    held = Description(rows.schema, None, tuple(names))
    empty.describe(held)
    opened = empty.open_stage(Origin("q", 0, "0"), held)
    opened.add(rows)
    empty.commit("q", 0, [opened.close()], clock_us=1)
    assert empty.read().to_pydict() == rows.to_pydict()
    for n, name in enumerate(names):
        assert empty.read(key={name: (n + 1, None)}).column(0).to_pylist() == [1]


def test_snapshots_are_found_by_their_time_in_any_century(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(HELD)
    for epoch, year in enumerate((1, 1969, 2026, 2300, 9999)):
        time = datetime(year, 12, 31, 23, 59, 59, 999_999, UTC)
        opened = store.open_stage(Origin("q", epoch, "0"), HELD)
        opened.add(pa.RecordBatch.from_pylist([{"id": epoch, "result_time": time}], schema=SCHEMA))
        store.commit("q", epoch, [opened.close()])
        snapshot = store.snapshots()[-1]
        assert snapshot.at == time
        assert store.read(snapshot=time).num_rows == epoch + 1


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


def kill_often(store: Store, folder: Path, kills: int, seed: int) -> None:
    """Kill a writer at random moments, and compare what the store holds with a run that nobody kills."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.store_writer"])
    random, checkpoint = Random(seed), folder / "commits"
    store.describe(store_writer.HELD)
    n_killed = epochs = 0
    while n_killed < kills:
        # Each process has more to do than it has time.
        epochs += 200
        process = context.Process(
            target=store_writer.write, args=(write_store(store), str(checkpoint), epochs)
        )
        before = checkpoint.read_text() if checkpoint.exists() else ""
        process.start()
        while not checkpoint.exists() or checkpoint.read_text() == before:
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.02))
        process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
        epochs = int(checkpoint.read_text()) + 1
    last = epochs + 5
    process = context.Process(target=store_writer.write, args=(write_store(store), str(checkpoint), last))
    process.start()
    process.join()
    assert process.exitcode == 0
    tasks = range(store_writer.TASKS)
    expected = [one for epoch in range(last) for task in tasks for one in store_writer.list_ids(epoch, task)]
    assert read_ids(store) == expected
    plain, ledger = [], Ledger()
    for epoch in range(last):
        brought = Brought(epoch, store_writer.TASKS * store_writer.ROWS, 3 * epoch, 3 * epoch)
        ledger, snapshot = ledger.commit("q", brought, store_writer.RULE)
        plain += [] if snapshot is None else [snapshot]
    assert store.snapshots() == plain
    store.sweep()
    assert store.sweep() == 0
    assert read_ids(store) == expected


@pytest.mark.parametrize("empty", ["parquet"], indirect=True)
def test_a_killed_writer_adds_nothing_and_loses_nothing(empty: Store, tmp_path: Path) -> None:
    kill_often(empty, tmp_path, kills=4, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("empty", KINDS, indirect=True)
def test_a_hundred_kills_change_nothing(empty: Store, tmp_path: Path) -> None:
    kill_often(empty, tmp_path, kills=100, seed=2)


def fill(store: Store, epochs: range, rule: Snapshots) -> None:
    for epoch in epochs:
        store.commit("q", epoch, stage(store, epoch, *(epoch % 60 for _ in range(1 + epoch % 3))), rule)


def test_merged_files_hold_the_same_snapshots(store: Store) -> None:
    rule = Snapshots(every="2 minutes")
    fill(store, range(20), rule)
    snapshots = store.snapshots()
    each = [store.read_snapshot(one)["id"].to_pylist() for one in snapshots]
    until = [read_ids(store, snapshot=one) for one in snapshots]
    by_key, everything = read_ids(store, key={"a.symbol": "s1"}), read_ids(store)
    if isinstance(store, PostgresStore):
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
    fill(store, range(15, 30), rule)
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
    fill(store, range(15, 24), rule)
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


def test_an_attempt_that_stops_in_the_middle_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_stage, "GROUP_ROWS", 1000)
    torn = store.open_stage(Origin("q", 0, "0"), HELD)
    rows = pa.concat_batches([make_rows(*range(60))] * 50)
    torn.add(rows)
    del torn
    store.commit("q", 0, stage(store, 0, 1))
    assert read_ids(store) == [1]
    store.sweep()
    assert read_ids(store) == [1]
    if isinstance(store, ParquetStore):
        assert [str(path) for path in Path(store.path).glob("*.parquet")] == store.files()


def test_snapshots_follow_the_time_of_results_and_no_clock(tmp_path: Path) -> None:
    found = []
    for name, clocks in (("live", range(8)), ("lagging", range(10**15, 10**15 + 8))):
        store = ParquetStore(str(tmp_path / name))
        store.describe(HELD)
        for epoch, clock_us in enumerate(clocks):
            store.commit("q", epoch, stage(store, epoch, epoch), Snapshots(every="3 minutes"), clock_us)
        found.append(store.snapshots())
    assert found[0] == found[1]
    assert [(one.at.minute, one.rows) for one in found[0]] == [(3, 4), (6, 3)]


def test_results_without_a_time_follow_the_clock(tmp_path: Path) -> None:
    store, held = ParquetStore(str(tmp_path)), Description(SCHEMA)
    store.describe(held)
    for epoch in range(8):
        opened = store.open_stage(Origin("q", epoch, "0"), held)
        opened.add(make_rows(9))
        staged = opened.close()
        assert staged is not None
        store.commit("q", epoch, [staged], Snapshots(every="3 us"), clock_us=epoch)
    assert [(one.at_us, one.rows) for one in store.snapshots()] == [(3, 4), (6, 3)]
    with pytest.raises(QueryError, match="NO_TIME_COLUMN"):
        store.read(since="2026-01-05")


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
    assert read_store(write_store(store)) == store
    assert store.sweep(grace_s=0) == 4
    assert read_ids(store) == expected


def test_a_relative_folder_is_made_absolute_where_the_store_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = ParquetStore("store")
    monkeypatch.chdir("/")
    assert store.path == str(tmp_path / "store")


def test_a_writer_that_was_stopped_in_a_commit_writes_no_version_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, append = ParquetStore(str(tmp_path)), version_log.VersionLog.append
    store.describe(HELD)
    fill(store, range(3), EACH_EPOCH)

    def wait(log: version_log.VersionLog, version: int, entry: dict[str, Any]) -> bool:
        """Let other processes commit and merge before the version is written."""
        monkeypatch.setattr(version_log.VersionLog, "append", append)
        for first in (3, 8, 13):
            fill(store, range(first, first + 5), EACH_EPOCH)
            assert store.compact() > 0
        return append(log, version, entry)

    monkeypatch.setattr(version_log.VersionLog, "append", wait)
    assert store.commit("p", 0, stage(store, 0, 59, query="p"))
    expected = sorted([*(id for epoch in range(18) for id in [epoch] * (1 + epoch % 3)), 59])
    assert read_ids(store) == expected
    history._KNOWN.clear()
    version_log._NEWEST.clear()
    assert read_ids(store) == expected


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
