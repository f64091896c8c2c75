"""Statements of clients run in processes that have bounded memory and time, and that end with the service."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from io import BytesIO
from itertools import repeat
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.service import make_pairs
from tests.unit.results.test_questions import ESCAPES, spell
from thetastream.core.errors import QueryError, StoreError
from thetastream.core.stopping import Stop
from thetastream.results.description import Description
from thetastream.results.question import ask
from thetastream.results.staged import Origin
from thetastream.service import sandbox, statement_pool
from thetastream.service.bodies import ResponseMemory
from thetastream.service.limits import Limits
from thetastream.service.statement_pool import StatementPool
from thetastream.service.statement_worker import JSON, LENGTH, SPARE_BYTES, _read_requests, encode_table
from thetastream.service.traceless import FUNCTIONS, leaves_no_trace
from thetastream.stores import ParquetStore

MEMORY = 200_000_000
ROWS = partial(pa.table, {"i": list(range(1000)), "a": ["x" * 1000] * 1000})
LIMITS = Limits(rows=1000, memory=2 * MEMORY, questions=2)
GROWING = """\
SELECT repeat('x', 900000000)
SELECT list_resize([1], 900000000)
SELECT list_reduce(range(40)::VARCHAR[], lambda a, b: a || a || b)
SELECT replace(repeat('x', 100000), 'x', repeat('y', 100000))
SELECT string_agg(repeat(a, 1000)) FROM results
SELECT repeat(a, 200000) || i FROM results LIMIT 1
SELECT list(a || range) FROM results, range(1000)
WITH RECURSIVE t(a) AS (SELECT 'x' UNION ALL SELECT a || a FROM t) SELECT max(length(a)) FROM t"""


@pytest.fixture(scope="module")
def pool() -> StatementPool:
    return StatementPool(LIMITS)


def find_workers(pool: StatementPool | None = None) -> list[psutil.Process]:
    """Find the processes of a pool, or those of all pools. A pool that is not used any more may have some."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            is_worker = "thetastream.service.statement_worker" in child.cmdline()
            if is_worker and (pool is None or child.cwd() == pool._folder.name):
                found.append(child)
    return found


def count(pool: StatementPool) -> int:
    found: int = pool.ask(ROWS, "SELECT count(*) AS n FROM results")["n"][0].as_py()
    return found


@pytest.mark.sampled(3)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds all private memory")
@pytest.mark.parametrize("sql", GROWING.splitlines())
def test_a_statement_that_grows_is_refused_and_takes_no_more_than_its_memory(
    pool: StatementPool, sql: str
) -> None:
    assert count(pool) == 1000
    small, peak, over = max(worker.memory_info().rss for worker in find_workers()), 0, Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.002):
            for worker in find_workers():
                with suppress(psutil.NoSuchProcess):
                    peak = max(peak, worker.memory_info().rss)

    watching = Thread(target=watch)
    watching.start()
    with pytest.raises(QueryError, match=r"TOO_LARGE.*200 MB"):
        pool.ask(ROWS, sql)
    over.set()
    watching.join()
    assert peak < small + MEMORY + SPARE_BYTES + 2 * ROWS().nbytes


@pytest.mark.parametrize("sql", ESCAPES.splitlines())
def test_a_statement_reads_the_results_only(pool: StatementPool, tmp_path: Path, sql: str) -> None:
    file = tmp_path / "file"
    file.write_text("hidden words")
    with pytest.raises(QueryError, match="STORE_QUERY") as error:
        pool.ask(ROWS, spell(sql, file))
    assert "hidden words" not in str(error.value)
    assert list(tmp_path.iterdir()) == [file]


def test_a_statement_leaves_nothing_for_the_next_client_and_sees_no_folder_of_the_machine() -> None:
    pool = StatementPool(Limits(questions=1))
    register = "register_external_resource"
    if pool.ask(ROWS, f"FROM duckdb_functions() WHERE function_name = '{register}'").num_rows:
        assert pool.ask(ROWS, f"FROM {register}('compute', 'x', MAP {{'a': 'b'}})").num_rows == 1
        assert pool.ask(ROWS, "FROM duckdb_external_resources()").num_rows == 0
    sql = "SELECT name, value FROM duckdb_settings() WHERE value LIKE '%/%'"
    found = {row["name"]: row["value"] for row in pool.ask(ROWS, sql).to_pylist()}
    assert not [value for value in found.values() if value.startswith(("/", "~", "."))], found


def test_a_process_gets_no_variable_that_only_begins_as_one_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("HOMEBREW_GITHUB_API_TOKEN", "USER_PASSWORD", "PATH_OF_KEY", "LANGSMITH_API_KEY", "TZ_KEY"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    chosen = statement_pool._choose_environment(str(tmp_path), ["PG"])
    assert "hidden" not in chosen.values()
    assert chosen["LC_ALL"] == "C.UTF-8"
    assert chosen["PATH"] == os.environ["PATH"]


def test_functions_that_leave_no_trace_only_compute() -> None:
    known = "SELECT function_name, bool_or(has_side_effects) AS acts FROM duckdb_functions() GROUP BY 1"
    found = {row["function_name"]: row["acts"] for row in ask(ROWS(), known).to_pylist()}
    assert not [name for name in FUNCTIONS if name not in found or found[name]]


@pytest.mark.parametrize(
    ("sql", "is_traceless"),
    [
        ("SELECT DISTINCT ON (a) a, sum(b) OVER (PARTITION BY a ORDER BY b DESC) AS s FROM results", True),
        (
            "WITH z AS (SELECT 1 AS a) FROM z JOIN (VALUES (2)) t(b) ON a < b WHERE a IN (SELECT 3) LIMIT 4",
            True,
        ),
        (
            "SELECT a::DECIMAL(9, 2), CASE WHEN a IS NULL THEN DATE '2026-01-01' END FROM results",
            True,
        ),
        (
            "SELECT a FROM results UNION ALL SELECT b FROM results WHERE b BETWEEN 1 AND 2 OR b LIKE 'x%'",
            True,
        ),
        ("SELECT a FROM results WHERE EXISTS (FROM duckdb_settings())", False),
        ("SELECT (SELECT nextval('s')) + a FROM results", False),
        ("SELECT list_transform([1], x -> setseed(0.1)) FROM results", False),
        ("SELECT a FROM results ORDER BY random()", False),
        ("SELECT count(*) FILTER (WHERE write_log('x') IS NULL) FROM results", False),
        ("SUMMARIZE results", False),
        ("FROM results, range(3)", False),
        ("nothing", False),
    ],
)
def test_a_database_is_used_again_if_only_listed_functions_were_called(sql: str, is_traceless: bool) -> None:
    with duckdb.connect(":memory:") as database:
        assert leaves_no_trace(database, sql) == is_traceless


MANY_TERMS = (
    f"SELECT {' + '.join(['1'] * 900)} AS n",
    f"SELECT {'NOT ' * 900}true AS n",
    f"SELECT count(*) AS n FROM {'(SELECT * FROM ' * 300}results{')' * 300}",
)


def test_a_statement_of_many_terms_ends_no_process(capfd: pytest.CaptureFixture[str]) -> None:
    pool = StatementPool(Limits(questions=1))
    assert count(pool) == 1000
    (worker,) = find_workers(pool)
    assert [pool.ask(ROWS, sql)["n"][0].as_py() for sql in MANY_TERMS] == [900, True, 1000]
    assert count(pool) == 1000
    assert find_workers(pool) == [worker]
    assert capfd.readouterr().err == ""


def test_an_answer_has_its_types_and_order(pool: StatementPool) -> None:
    found = pool.ask(ROWS, "SELECT i + 9007199254740993 AS big FROM results ORDER BY i DESC LIMIT 2")
    assert found.schema.types == [pa.int64()]
    assert found["big"].to_pylist() == [2**53 + 1000, 2**53 + 999]
    assert pool.ask(ROWS, "SELECT i FROM results WHERE false").num_rows == 0
    with pytest.raises(QueryError, match="TOO_MANY_ROWS"):
        pool.ask(ROWS, "SELECT * FROM range(1001)")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds all private memory")
def test_the_memory_of_an_answer_in_json_counts(pool: StatementPool) -> None:
    word = "x" * 100_000
    repeated = f"SELECT '{word}'::ENUM('{word}') AS a FROM range(1000)"
    assert pool.ask(ROWS, repeated).nbytes < 2 * len(word)
    for sql in (repeated.replace("1000)", "1000), range(10)"), "SELECT list_resize([true], 20000000)"):
        with pytest.raises(QueryError, match="TOO_"):
            pool.encode(ROWS, sql, JSON)
    assert pool.encode(ROWS, "SELECT i FROM results LIMIT 2", JSON).content == b'[{"i":0},{"i":1}]'


@pytest.mark.parametrize(
    ("sql", "rule"),
    [
        ("SELECT 'infinity'::TIMESTAMP", f"cannot be written as {JSON}.*VARCHAR, or accept Arrow"),
        ("SELECT [DATE '10000-01-01']", f"cannot be written as {JSON}.*VARCHAR, or accept Arrow"),
        (f"SELECT {'[' * 64}1{']' * 64}", "Recursion level"),
        ("SELECT '\ud800'", "a text of Unicode"),
    ],
    ids=["infinity", "year", "nested", "surrogate"],
)
def test_a_value_that_an_answer_cannot_have_ends_no_process(pool: StatementPool, sql: str, rule: str) -> None:
    def keeps_its_process() -> bool:
        count(pool)
        before = find_workers(pool)
        with pytest.raises(QueryError, match=f"STORE_QUERY.*{rule}"):
            pool.encode(ROWS, sql, JSON)
        return find_workers(pool) == before != []

    # A process that has kept more memory than others may end after any answer.
    assert any(keeps_its_process() for _ in range(3))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("TIME '24:00:00'", None),
        ("[{'a': MAP {1: [TIME '24:00:00', NULL]::TIME[2]}}]", None),
        ("union_value(a := TIME '24:00:00')", None),
        ("'12:00:00.123456789'::TIME_NS", None),
        ("'12:00:00.123456'::TIME_NS", '"12:00:00.123456"'),
        ("[TIME '23:59:59.999999', NULL]", '["23:59:59.999999",null]'),
        ("'2020-01-01 00:00:00.123456789'::TIMESTAMP_NS", '"2020-01-01T00:00:00.123456789"'),
    ],
)
def test_a_time_in_json_is_the_one_of_the_answer(value: str, text: str | None) -> None:
    table = duckdb.sql(f"SELECT {value} AS t").to_arrow_table()
    if text is None:
        with pytest.raises(QueryError, match=r"STORE_QUERY.*24:00:00.*VARCHAR, or accept Arrow"):
            encode_table(table, JSON)
    else:
        assert encode_table(table, JSON).decode() == f'[{{"t":{text}}}]'


def test_the_process_opens_a_store_and_its_errors_keep_their_class(
    tmp_path: Path,
) -> None:
    pool, store = StatementPool(LIMITS, folders=[str(tmp_path)]), make_pairs(tmp_path)
    asked = partial(store.open, None, None, None, {"id": 2})
    assert pool.ask(asked, "SELECT id FROM results")["id"].to_pylist() == [2]
    with pytest.raises(QueryError, match="UNKNOWN_SNAPSHOT"):
        pool.ask(partial(store.open, 9), "SELECT 1")
    with pytest.raises(StoreError, match="NO_STORE"):
        pool.ask(ParquetStore(str(tmp_path / "none")).open, "SELECT 1")


def test_a_statement_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_pool, "GRACE_S", 0.1)
    pool = StatementPool(Limits(seconds=0.4, questions=1))
    with pytest.raises(QueryError, match=r"TOO_SLOW.*after 0\.4 s"):
        pool.ask(ROWS, "SELECT sum(a.range * b.range) FROM range(9000000) a, range(9000000) b")
    assert count(pool) == 1000
    with pytest.raises(QueryError, match=r"TOO_SLOW.*after 0\.4 s"):
        pool.ask(partial(time.sleep, 60), "SELECT 1")
    assert count(pool) == 1000


@pytest.mark.slow
def test_an_answer_that_waits_for_memory_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    class BusyMemory(ResponseMemory):
        def take(self, nbytes: int, stop: Stop) -> Callable[[], None]:
            time.sleep(3)
            return super().take(nbytes, stop)

    monkeypatch.setattr(statement_pool, "GRACE_S", 0.5)
    pool, memory = StatementPool(Limits(questions=1, seconds=2)), BusyMemory(MEMORY)
    # The answer is larger than a pipe, so its process still writes it while it waits.
    answer = pool.encode(ROWS, "SELECT a FROM results", JSON, memory)
    assert len(answer.content) > 1_000_000
    del answer
    gc.collect()
    assert memory.n_held == 0


def test_an_answer_whose_process_ends_gives_its_memory_back() -> None:
    class LastMemory(ResponseMemory):
        def take(self, nbytes: int, stop: Stop) -> Callable[[], None]:
            give_back = super().take(nbytes, stop)
            for worker in set(find_workers()) - others:
                worker.kill()
            return give_back

    others = set(find_workers())
    pool, memory = StatementPool(Limits(questions=1)), LastMemory(MEMORY)
    with pytest.raises(QueryError, match=r"STORE_QUERY.*ended with code -9"):
        pool.encode(ROWS, "SELECT a FROM results", JSON, memory)
    assert memory.n_held == 0


def test_a_stop_that_comes_when_the_statement_has_ended_does_not_end_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cursor = duckdb.connect().cursor()
    cursor.close()
    stops = ExitStack()

    class Arrived(SimpleQueue[tuple[bytes, Stop]]):
        def put(self, item: tuple[bytes, Stop], *_: object) -> None:  # type: ignore[override]
            stops.enter_context(item[1].attach(cursor.interrupt))
            super().put(item)

    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    sent = [LENGTH.pack(1) + b"a", LENGTH.pack(0), LENGTH.pack(1) + b"b"]
    arrived = Arrived()
    _read_requests(BytesIO(b"".join(sent)), arrived)
    first, second = arrived.get(), arrived.get()
    assert (first[0], first[1].is_set) == (b"a", True)
    assert (second[0], second[1].is_set) == (b"b", False)
    assert codes == [0]


def test_a_killed_process_is_replaced() -> None:
    before = set(find_workers())
    pool = StatementPool(LIMITS)
    count(pool)
    (worker,) = set(find_workers()) - before
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(pool.ask, partial(time.sleep, 60), "SELECT 1")
        time.sleep(0.2)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(QueryError, match=r"STORE_QUERY.*has ended with code -9"):
            asked.result()
    assert count(pool) == 1000


def test_a_process_that_was_killed_between_statements_is_not_asked() -> None:
    before = set(find_workers())
    pool = StatementPool(LIMITS)
    count(pool)
    (worker,) = set(find_workers()) - before
    # Ctrl-C in the terminal of a service reaches the processes of its group.
    assert os.getpgid(worker.pid) != os.getpgid(0)
    worker.kill()
    psutil.wait_procs([worker], timeout=5)
    assert count(pool) == 1000


def test_a_store_that_cannot_be_read_ends_the_process_and_not_the_pool(pool: StatementPool) -> None:
    with pytest.raises(QueryError, match=r"STORE_QUERY.*has ended with code 1.*log of the service"):
        pool.ask(partial(open, "/no/such/file"), "SELECT 1")
    assert count(pool) == 1000


@pytest.mark.slow
def test_many_clients_share_few_processes() -> None:
    before = set(find_workers())
    pool = StatementPool(LIMITS)
    sql = [f"SELECT {n} AS n, sum(i) AS s FROM results" for n in range(60)]
    with ThreadPoolExecutor(30) as threads:
        found = list(threads.map(pool.ask, repeat(ROWS), sql))
    assert [one.to_pylist() for one in found] == [[{"n": n, "s": 499_500}] for n in range(60)]
    workers = set(find_workers()) - before
    assert 1 <= len(workers) <= 2
    del pool
    gc.collect()
    # A process that is still starting ends when it has started.
    assert not psutil.wait_procs(workers, timeout=20)[1]


def hold_starts(monkeypatch: pytest.MonkeyPatch) -> tuple[Event, Event]:
    """Let no process start before the first event; the second one says that one wants to."""
    may_start, is_starting, usual = Event(), Event(), statement_pool.Worker

    def start_slowly(*arguments: Any) -> statement_pool.Worker:
        is_starting.set()
        assert may_start.wait(60)
        return usual(*arguments)

    monkeypatch.setattr(statement_pool, "Worker", start_slowly)
    return may_start, is_starting


def test_statements_do_not_wait_for_a_process_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = StatementPool(LIMITS)
    pool.prepare()
    assert count(pool) == 1000
    may_start, is_starting = hold_starts(monkeypatch)
    sql = "SELECT count(*) AS n FROM results AS a, results AS b, range(30)"
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(pool.ask, repeat(ROWS, 8), repeat(sql)))
        assert is_starting.is_set()
        may_start.set()
    assert [one.to_pylist() for one in found] == [[{"n": 30_000_000}]] * 8


@pytest.mark.slow
def test_a_process_that_cannot_start_fails_the_statements_that_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pool, usual, started = StatementPool(LIMITS), statement_pool.Worker, []

    def fail(*arguments: Any) -> statement_pool.Worker:
        started.append(1)
        raise OSError("no more processes")

    monkeypatch.setattr(statement_pool, "Worker", fail)
    with pytest.raises(QueryError, match=r"TOO_BUSY.*no process for the statement could start"):
        pool.prepare()
    # Clients cannot fill the log: no process is started in the moment after that.
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(count, pool) for _ in range(3)]
        for one in asked:
            with pytest.raises(QueryError, match="TOO_BUSY"):
                one.result(60)
    assert len(started) == len(caplog.records) == 1
    assert "no more processes" in caplog.text
    monkeypatch.setattr(statement_pool, "Worker", usual)
    monkeypatch.setattr(statement_pool, "PAUSE_S", 0)
    assert count(pool) == 1000


def test_a_process_that_never_gets_ready_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Statements waited for it for ever, and with them all other statements."""
    (tmp_path / "asleep.py").write_text("import time\ntime.sleep(600)")
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "__file__", str(tmp_path / "asleep.py"))
        patch.setattr(statement_pool, "START_S", 1.0)
        pool = StatementPool(LIMITS)
        with pytest.raises(QueryError, match="TOO_BUSY"):
            count(pool)
    # A process that has ended and waits for its parent has no command line.
    lines = [one.as_dict(["cmdline"])["cmdline"] or [] for one in psutil.Process().children()]
    assert not [line for line in lines if str(tmp_path / "asleep.py") in line]


def test_a_client_that_leaves_does_not_wait_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    may_start, is_starting = hold_starts(monkeypatch)
    pool, stop = StatementPool(LIMITS), Stop()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(pool.encode, ROWS, "SELECT 1", JSON, None, stop)
        assert is_starting.wait(60)
        stop.set()
        with pytest.raises(QueryError, match="TOO_BUSY"):
            asked.result(60)
    may_start.set()
    assert count(pool) == 1000


def test_processes_end_with_a_service_that_is_killed() -> None:
    program = """
import time
from functools import partial
from threading import Thread
import pyarrow as pa
from thetastream.service.bodies import ResponseMemory
from thetastream.service.limits import Limits
from thetastream.service.statement_pool import StatementPool
pool = StatementPool(Limits())
pool.ask(partial(pa.table, {"x": [1]}), "SELECT 1")
Thread(target=pool.ask, args=(partial(time.sleep, 60), "SELECT 1")).start()
print("ready", flush=True)
"""
    service = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert service.stdout is not None
    assert service.stdout.readline() == b"ready\n"
    (worker,) = psutil.Process(service.pid).children()
    service.kill()
    service.wait()
    service.stdout.close()
    worker.wait(timeout=20)


def test_the_memory_of_a_service_must_be_a_size() -> None:
    with pytest.raises(QueryError, match=r"BAD_VALUE.*memory must be a size"):
        StatementPool(Limits(memory="much"))


WIDE = Description(pa.schema([("id", pa.int64()), ("text", pa.string())]), None)
WIDE_ROWS, EPOCHS, CHARACTERS = 150_000, 2, 400


@pytest.mark.slow
def test_statements_over_rows_with_much_text_need_little_memory(tmp_path: Path) -> None:
    store = ParquetStore(str(tmp_path))
    store.describe(WIDE)
    for epoch in range(EPOCHS):
        letters = np.random.default_rng(epoch).integers(97, 123, WIDE_ROWS * CHARACTERS, dtype=np.uint8)
        ends = pa.py_buffer(np.arange(0, (WIDE_ROWS + 1) * CHARACTERS, CHARACTERS, dtype=np.int32))
        text = pa.StringArray.from_buffers(WIDE_ROWS, ends, pa.py_buffer(letters))
        stage = store.open_stage(Origin("q", epoch, "0"), WIDE)
        stage.add(pa.record_batch([pa.array(range(WIDE_ROWS)), text], schema=WIDE.schema))
        staged = stage.close()
        assert staged is not None
        assert store.commit("q", epoch, [staged])
    groups = [pq.ParquetFile(file).metadata.num_row_groups for file in store.files()]
    assert groups == [2, 2], "each has about 30 MB"
    limits = Limits(rows=1000, memory=100_000_000, questions=1, seconds=60)
    pool = StatementPool(limits, folders=[store.path])
    for sql, answer in (
        ("count(*)", EPOCHS * WIDE_ROWS),
        ("max(length(text))", CHARACTERS),
        ("count(*) FILTER (text LIKE '%abcdefgh%')", 0),
    ):
        assert pool.ask(store.open, f"SELECT {sql} AS n FROM results")["n"].to_pylist() == [answer]
    assert pool.ask(store.open, "SELECT * FROM results LIMIT 3").num_rows == 3
