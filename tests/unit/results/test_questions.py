"""Questions in SQL over a store that does not change meanwhile, and subscriptions to its snapshots."""

import gc
import shutil
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import thetastream as th
from tests.support.stores import HELD, stage
from thetastream.core.errors import QueryError
from thetastream.results import question, recent
from thetastream.results.recent import Recent
from thetastream.stores import parquet


@pytest.fixture
def store(tmp_path: Path) -> th.ParquetStore:
    made = th.ParquetStore(str(tmp_path / "store"))
    made.describe(HELD)
    for epoch in range(6):
        made.commit("q", epoch, stage(made, epoch, 2 * epoch, 2 * epoch + 1))
    return made


def ask(store: th.ParquetStore, sql: str, **asked: Any) -> list[tuple[Any, ...]]:
    found = th.query(store, sql, **asked).to_pydict()
    return list(zip(*found.values(), strict=True))


@pytest.mark.parametrize(("capacity", "n_kept"), [(recent.CAPACITY, 6), (0, 0), (20_000, 3)])
def test_answers_are_the_same_from_memory_and_from_files(
    store: th.ParquetStore, monkeypatch: pytest.MonkeyPatch, capacity: int, n_kept: int
) -> None:
    monkeypatch.setattr(recent, "CAPACITY", capacity)
    monkeypatch.setattr(parquet, "RECENT", Recent(capacity))
    staged = list(store.read_history().list_staged())
    kept, older = recent.split_recent(staged)
    assert [*older, *kept] == staged
    assert len(kept) == n_kept
    assert ask(store, "SELECT count(*), min(id), max(id) FROM results") == [(12, 0, 11)]
    assert ask(store, "SELECT count(*) FROM results", snapshot=2) == [(4,)]
    of_key = ask(store, "SELECT id FROM results ORDER BY id", key={"a.symbol": "s1"})
    assert of_key == [(1,), (4,), (7,), (10,)]
    assert ask(store, "SELECT id FROM results ORDER BY id", since="2026-01-05 09:10") == [(10,), (11,)]
    by_symbol = "SELECT a.symbol AS symbol, count(*) FROM results GROUP BY ALL ORDER BY ALL"
    assert ask(store, by_symbol) == [("s0", 4), ("s1", 4), ("s2", 4)]
    assert ask(store, "SELECT strftime(result_time, '%H:%M') FROM results WHERE id = 3") == [("09:03",)]


def test_questions_are_right_at_every_moment_while_a_query_writes(
    store: th.ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the results come from memory and half from files, and later commits change no answer."""
    monkeypatch.setattr(recent, "CAPACITY", 20_000)
    monkeypatch.setattr(parquet, "RECENT", Recent(20_000))

    def write() -> None:
        for epoch in range(6, 30):
            store.commit("q", epoch, stage(store, epoch, 2 * epoch, 2 * epoch + 1))

    writing, n_spans, is_over = threading.Thread(target=write), 0, False
    writing.start()
    while not is_over:
        is_over = not writing.is_alive()
        last = store.snapshots()[-1].number
        for number in (last, last // 2):
            ids = list(range(2 * number))
            assert ask(store, "SELECT id FROM results ORDER BY id", snapshot=number) == [(n,) for n in ids]
            of_key = ask(store, "SELECT sum(id) FROM results", snapshot=number, key={"a.symbol": "s1"})
            assert of_key == [(sum(ids[1::3]),)]
            kept, older = recent.split_recent(list(store.read_history().list_staged(number)))
            n_spans += bool(kept and older)
    assert last == 30
    assert n_spans


def test_an_answer_goes_on_in_pandas_and_duckdb(store: th.ParquetStore) -> None:
    answer = th.query(store, "SELECT id, a.symbol AS symbol FROM results", snapshot=2)
    assert sorted(answer.to_pandas()["id"]) == [0, 1, 2, 3]
    counts = duckdb.sql("SELECT symbol, count(*) FROM answer GROUP BY symbol ORDER BY symbol").fetchall()
    assert counts == [("s0", 2), ("s1", 1), ("s2", 1)]


@pytest.mark.parametrize(
    "sql", ["SELECT x FROM results", "SELECT y FROM results", "SELECT error('no') FROM results"]
)
def test_a_question_that_is_over_keeps_no_rows_in_memory(sql: str) -> None:
    rows = pa.table({"x": [1, 2]})
    kept = weakref.ref(rows)
    with suppress(QueryError):
        question.ask(rows, sql, max_s=60)
    del rows
    gc.collect()
    assert kept() is None


def test_memory_holds_what_was_used_last() -> None:
    table = pa.table({"x": pa.array(range(100))})
    kept, read = Recent(capacity=2 * table.nbytes), []
    for name in ("a", "b", "a", "c", "a", "b"):

        def open_file(name: str = name) -> pa.Table:
            read.append(name)
            return table

        assert kept.get(name, open_file) is table
    assert read == ["a", "b", "c", "b"]


ESCAPES = """\
SELECT * FROM read_text('{file}')
SELECT * FROM '{file}'
SELECT * FROM read_csv('{file}')
SELECT * FROM read_parquet('{file}')
SELECT * FROM glob('/*')
SELECT * FROM duckdb_secrets()
SELECT * FROM confidential
SELECT * FROM sniff_csv('{file}')
COPY (SELECT 1) TO '{file}.out'
COPY results TO '{file}.out'
ATTACH '{file}.db'
INSTALL httpfs
LOAD httpfs
SET enable_external_access = true
SET lock_configuration = false
RESET memory_limit
PRAGMA enable_external_access
CREATE TABLE t AS SELECT 1
CREATE MACRO f() AS 1
DROP VIEW results
INSERT INTO results SELECT * FROM results
DELETE FROM results
EXPORT DATABASE '{file}.d'
CALL pragma_version()
CHECKPOINT
EXPLAIN SELECT 1
SELECT * FROM enable_logging()
SELECT * FROM enable_logging('QueryLog', storage='file', storage_config={{'path': '{file}.out'}})
SELECT * FROM disable_logging()
SELECT * FROM enable_profiling()
SELECT * FROM read_blob('{file}')
SELECT * FROM read_ndjson_objects('{file}')
SELECT * FROM parquet_metadata('{file}')
SELECT * FROM arrow_scan(1::POINTER, 2::POINTER, 3::POINTER)
SELECT getenv('HOME')
SELECT * FROM read_duckdb('{file}', table_name = 't')
SELECT * FROM query_table('{file}')
SELECT * FROM parquet_page_index('{file}')
SELECT * FROM read_single_csv_file('{file}')
SELECT * FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{file}'')'))
SELECT * FROM which_secret('s3://bucket/x', 's3')
SELECT * FROM duckdb_extensions()
SELECT * FROM read_xlsx('{file}')
SELECT excel_text(1, '0')
SELECT * FROM delta_scan('{file}')
SELECT * FROM add_grammar_extension('x')
SELECT * FROM destroy_external_resource('read_text', '{file}')
SELECT * FROM register_external_resource_type('x', kind := 'compute', {functions})
SELECT * FROM query('FROM register_external_resource_' || 'type(''x'', kind := ''compute'', {quoted})')
SELECT content FROM read_text('{file}') UNION ALL SELECT 'x'
SELECT list_transform(['{file}'], lambda f: (SELECT content FROM read_text(f)))
SELECT 1; SELECT 2
BEGIN
SELECT * FROM query('COPY (SELECT 1) TO ''{file}.out''')

SELECT nothing FROM results
SELECT 1 +"""


def spell(sql: str, file: Path) -> str:
    """Put a file into an escape, and the functions that a type of resources of DuckDB needs."""
    roles = ("create", "destroy", "status", "resolve", "list")
    functions = ", ".join(f"{role}_function := 'range'" for role in roles)
    return sql.format(file=file, functions=functions, quoted=functions.replace("'", "''"))


def test_a_question_leaves_nothing_for_the_next_one(store: th.ParquetStore) -> None:
    left = "SELECT * FROM duckdb_external_resource_types()"
    for sql in ESCAPES.splitlines():
        if "register_external_resource_" in sql:
            with pytest.raises(QueryError, match="must only read"):
                th.query(store, spell(sql, Path("file")))
            assert th.query(store, left).num_rows == 0


@pytest.mark.parametrize("sql", ESCAPES.splitlines())
def test_a_question_reads_the_results_only(store: th.ParquetStore, tmp_path: Path, sql: str) -> None:
    # A table of this process that the statement must not see.
    confidential, file = pa.table({"x": [1]}), tmp_path / "file"
    file.write_text("hidden words")
    with pytest.raises(QueryError, match="STORE_QUERY") as error:
        th.query(store, spell(sql, file))
    assert "hidden words" not in str(error.value)
    assert str(Path.home()) not in str(error.value)
    assert {path.name for path in tmp_path.iterdir()} == {"store", "file"}
    assert confidential.num_rows == 1


def test_no_function_tells_a_folder_of_this_machine(store: th.ParquetStore) -> None:
    named = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'pragma')"
    names = [name for (name,) in ask(store, named)]
    assert "duckdb_settings" in names
    told = []
    for name in names:
        try:
            told.append(str(ask(store, f'FROM "{name}"()')))
        except QueryError as error:
            told.append(str(error))
    assert [text for text in told if str(Path.home()) in text] == []


@pytest.mark.parametrize("value", ["'10:00:00+02'::TIMETZ", "['10:00:00+02'::TIMETZ]"])
def test_an_answer_does_not_lose_the_offset_of_a_time(store: th.ParquetStore, value: str) -> None:
    with pytest.raises(QueryError, match=r"STORE_QUERY.*column 't'.*TIME WITH TIME ZONE.*cast it to VARCHAR"):
        th.query(store, f"SELECT {value} AS t")
    assert th.query(store, f"SELECT ({value})::VARCHAR AS t")["t"][0].as_py().strip("[']") == "10:00:00+02"
    assert th.query(store, "SELECT TIMESTAMPTZ '2026-01-01 10:00:00+02' AS t").num_rows == 1


def test_a_question_must_be_a_text(store: th.ParquetStore) -> None:
    with pytest.raises(QueryError, match=r"STORE_QUERY.* a question must be one SELECT statement, not None"):
        th.query(store, None)  # type: ignore[arg-type]


def test_a_path_is_no_store(store: th.ParquetStore) -> None:
    path: Any = store.path
    with pytest.raises(QueryError, match=r'BAD_VALUE.* as in th.ParquetStore\("out"\), not '):
        th.query(path, "SELECT 1")
    with pytest.raises(QueryError, match="BAD_VALUE"):
        th.subscribe(path)


@pytest.mark.parametrize("sql", ["SELECT id FROM pairs", "SELECT idd FROM results"])
def test_a_question_about_other_names_learns_those_that_there_are(store: th.ParquetStore, sql: str) -> None:
    with pytest.raises(QueryError, match=r"STORE_QUERY.* The table results has the columns id, "):
        th.query(store, sql)


def test_a_subscriber_gets_each_snapshot_once_and_continues(store: th.ParquetStore) -> None:
    found = th.subscribe(store, since=4, patience="0s")
    assert [(one.snapshot.number, sorted(one.results["id"].to_pylist())) for one in found] == [
        (5, [8, 9]),
        (6, [10, 11]),
    ]
    first = next(iter(th.subscribe(store)))
    assert first.snapshot.number == 1
    rest = th.subscribe(store, first.snapshot, patience="0s")
    assert [snapshot.number for snapshot, _ in rest] == [2, 3, 4, 5, 6]
    filtered = th.subscribe(store, sql="SELECT id FROM results WHERE id % 4 = 0", patience="0s")
    assert [results["id"].to_pylist() for _, results in filtered] == [[0], [], [4], [], [8], []]


def test_a_subscriber_waits_for_what_is_written_meanwhile(store: th.ParquetStore) -> None:
    def write() -> None:
        for epoch in range(6, 30):
            store.commit("q", epoch, stage(store, epoch, epoch))

    writing, seen = threading.Thread(target=write), []
    deliveries = th.subscribe(store, poll="1 ms", patience="30s")
    writing.start()
    for snapshot, results in deliveries:
        # What the store has as of this snapshot is all that the subscriber has got.
        seen += results["id"].to_pylist()
        assert sorted(store.read(snapshot)["id"].to_pylist()) == sorted(seen)
        if snapshot.number == 30:
            break
    writing.join()
    assert sorted(seen) == sorted([*range(12), *range(6, 30)])


def test_a_subscriber_learns_that_the_store_was_restored(store: th.ParquetStore, tmp_path: Path) -> None:
    shutil.copytree(store.path, tmp_path / "backup")
    store.commit("q", 6, stage(store, 6, 50))
    found = th.subscribe(store, since=5, poll="1 ms")
    assert [next(found).snapshot.number for _ in range(2)] == [6, 7]
    shutil.rmtree(store.path)
    shutil.copytree(tmp_path / "backup", store.path)
    with pytest.raises(QueryError, match=r"UNKNOWN_SNAPSHOT.* the last snapshot of the store is 6"):
        next(found)


def test_readers_that_are_slow_hold_back_no_commit(store: th.ParquetStore) -> None:
    """A subscriber that has stopped to read, and a question that is still at work, hold nothing."""
    slow = iter(th.subscribe(store, poll="1 ms", patience="200 ms"))
    assert next(slow).snapshot.number == 1
    opened = store.open()
    # Each commit is made in this thread, between two steps of the readers.
    for epoch in range(6, 30):
        assert store.commit("q", epoch, stage(store, epoch, epoch))
    assert store.compact() > 0
    assert question.ask(opened, "SELECT count(*) AS n FROM results")["n"].to_pylist() == [12]
    assert [one.snapshot.number for one in slow] == list(range(2, 31))


@pytest.mark.parametrize(
    "asked",
    [{"poll": "soon"}, {"patience": "-1s"}, {"since": -1}, {"since": "7"}, {"since": 1.0}, {"since": True}],
)
def test_a_subscription_needs_a_number_and_spans(store: th.ParquetStore, asked: dict[str, Any]) -> None:
    (name,) = asked
    with pytest.raises(QueryError, match=f"BAD_VALUE.*{name}"):
        th.subscribe(store, **asked)


def test_a_subscriber_is_told_that_a_snapshot_was_forgotten_while_it_read(store: th.ParquetStore) -> None:
    deliveries = th.subscribe(store, patience="0s")
    assert next(deliveries).snapshot.number == 1
    store.forget(before=4)
    with pytest.raises(QueryError, match=r"SNAPSHOT_GONE.*snapshot 2 .*since=3"):
        next(deliveries)
    assert [one.snapshot.number for one in th.subscribe(store, since=3, patience="0s")] == [4, 5, 6]


def test_a_subscriber_that_has_seen_more_than_the_store_made_is_refused(store: th.ParquetStore) -> None:
    with pytest.raises(QueryError, match=r"UNKNOWN_SNAPSHOT.*is 6.*snapshot 7.*since=6"):
        next(th.subscribe(store, since=7))
    assert list(th.subscribe(store, since=6, patience="0s")) == []
