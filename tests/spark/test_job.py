"""Job files: running a job, stopping it, and continuing it."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException

import thetastream as th
from tests.support import sqlite_store
from tests.support.faults import killed_at_the_end
from thetastream.app import cli
from thetastream.app.cli.jobs import FIRST_FILE_S
from thetastream.app.cli.serving import read_stores
from thetastream.app.job.document import read_job
from thetastream.app.job.frames import read
from thetastream.app.job.spec import SourceSpec
from thetastream.joins import write
from thetastream.joins.ask.refusals import summarize
from thetastream.stores import REGISTRY

DOCS = Path(__file__).parents[2] / "docs"
SQL = "SELECT ONLINE a.value AS x, b.value AS y FROM a, b WHERE a.value = b.value + 1 WITHIN 5 seconds"
RATE = {"format": "rate", "event_time": "timestamp"}
GOOD = {"sql": SQL, "checkpoint": "c", "sources": {"a": RATE, "b": RATE}}


def command(*arguments):
    return [sys.executable, "-m", "thetastream.app.cli", *map(str, arguments)]


def thetastream(*arguments, **options):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600, **options)


@pytest.fixture
def here(spark, monkeypatch, capfd):
    """Make a function that runs a command in this process; it returns exit code, output and errors."""

    @contextmanager
    def session(conf, log=None):
        try:
            yield spark
        except PySparkException as error:
            raise summarize(error) from None

    def run(*arguments):
        capfd.readouterr()
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        return code, *capfd.readouterr()

    for commands in (cli.jobs, cli.statements, cli.tasks):
        monkeypatch.setattr(commands, "open_session", session)
    kept = spark.conf.get("spark.sql.streaming.numRecentProgressUpdates")
    yield run
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", kept)


def list_committed(folder):
    """List the files that Spark's sink has committed; an interrupted epoch may have left others."""
    return [
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "_spark_metadata").iterdir()
        if log.name.isdecimal()
        for line in log.read_text().splitlines()[1:]
    ]


# Running


@pytest.mark.snippets
def test_the_commands_of_the_docs_run(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fence = re.search(r"```sh\n(.*?)```", (DOCS / "reference" / "cli.md").read_text(), re.DOTALL)
    printed = {}
    for line in fence[1].splitlines():
        _, *arguments = shlex.split(line)
        code, printed[arguments[0]], errors = here(*arguments)
        assert code == 0, (line, errors)
    assert "biclique" in printed["models"]
    assert "condition     b.symbol = a.symbol AND b.price >= a.price" in printed["inspect"]
    assert "is fine" in printed["check"]
    assert "b.price >= a.price" in printed["explain"]
    *epochs, total = (int(n) for n in re.findall(r"([\d,]+) matches", printed["run"]))
    assert ds.dataset(list_committed(tmp_path / "example" / "matches")).count_rows() == sum(epochs) == 30
    assert total == 30
    assert printed["run"].splitlines()[-1].startswith(f"total: {len(epochs)} epochs, ")
    statement = (
        "SELECT ONLINE count(*) AS n FROM bids b, asks a WHERE b.symbol = a.symbol AND b.price >= a.price"
    )
    sources = ("--source", "bids=example/bids", "--source", "asks=example/asks")
    assert here("sql", f"{statement} WITHIN 1 minute", "--json", *sources)[:2] == (0, '{"n":30}\n')


def test_a_job_reads_files_by_arrow_and_may_change_the_reader(here, spark, tmp_path):
    assert here("init", tmp_path)[0] == 0
    job = tmp_path / "job.toml"
    schema = "id INT, symbol STRING, price DOUBLE, ts TIMESTAMP"

    def write_parquet(rows):
        for name in ("bids", "asks"):
            chosen = spark.read.csv(str(tmp_path / name), schema, header=True).filter(rows)
            chosen.write.mode("append").parquet(str(tmp_path / "parquet" / name))

    write_parquet("ts < '2024-01-02 09:05:00'")
    text = job.read_text()
    for name in ("bids", "asks"):
        text = text.replace(f'path = "{name}"', f'path = "parquet/{name}"\nreader = "arrow"')
    text = text.replace('format = "csv"', 'format = "parquet"').replace("{ header = true, ", "{ ")
    job.write_text(text)
    code, printed, errors = here("run", job, "--until-caught-up", "--json")
    assert code == 0, errors
    n_files = sum(1 for _ in (tmp_path / "parquet").glob("*/*.parquet"))
    total = json.loads(printed.splitlines()[-1])["total"]
    assert (total["files"], total["tuples"]) == (n_files, 0), "Arrow has read the files"
    assert "the task that reads a file routes its rows" in here("explain", job)[1]
    write_parquet("ts >= '2024-01-02 09:05:00'")
    job.write_text(text.replace('reader = "arrow"', 'reader = "spark"'))
    assert here("run", job, "--until-caught-up")[0] == 0
    pairs = ds.dataset(list_committed(tmp_path / "matches")).to_table(["bid", "ask"]).to_pylist()
    assert len(pairs) == len({(pair["bid"], pair["ask"]) for pair in pairs}) == 30


def test_a_job_reads_a_table_that_a_scheduler_stages(here, spark, tmp_path):
    rows = [(1, "2026-01-01 00:00:00", 10), (1, "2026-01-02 00:00:00", 20)]

    def write_table(rows):
        frame = spark.createDataFrame(rows, "k INT, since STRING, rate INT")
        frame.selectExpr("k", "CAST(since AS TIMESTAMP) AS since", "rate").write.mode("overwrite").parquet(
            str(tmp_path / "rates")
        )

    write_table(rows)
    (tmp_path / "a").mkdir()
    (tmp_path / "job.toml").write_text(
        """
        sql = "SELECT a.id, r.rate FROM a LEFT JOIN rates FOR SYSTEM_TIME AS OF a.ts AS r ON a.k = r.k"
        checkpoint = "checkpoint"
        sources.a = {format = "csv", path = "a", schema = "id INT, k INT, ts TIMESTAMP", event_time = "ts"}
        tables.rates = {path = "rates", key = "k", valid_from = "since"}
        sink = {format = "parquet", path = "out"}
        """
    )
    job = tmp_path / "job.toml"
    tuples = ["1,1,2026-01-01 12:00:00", "2,1,2026-01-02 12:00:00", "3,2,2026-01-02 12:00:00"]
    (tmp_path / "a" / "1.csv").write_text("".join(f"{one}\n" for one in tuples))
    assert here("run", job, "--until-caught-up")[0] == 0
    write_table([*rows, (2, "2026-01-02 00:00:00", 30)])
    code, printed, _ = here("stage", job, "rates", "--json")
    line = json.loads(printed)
    assert (code, line["table"], line["alias"], line["version"], line["rows"]) == (0, "rates", "r", 2, 3)
    (tmp_path / "a" / "2.csv").write_text("4,2,2026-01-02 12:00:00\n")
    assert here("run", job, "--until-caught-up")[0] == 0
    found = ds.dataset(list_committed(tmp_path / "out")).to_table().to_pylist()
    assert sorted((row["id"], row["rate"]) for row in found) == [(1, 10), (2, 20), (3, None), (4, 30)]
    code, _, errors = here("stage", job, "rate")
    assert code == 1
    assert "[UNKNOWN_SOURCE] the job has no table 'rate'; did you mean 'rates'?" in errors


@pytest.mark.parametrize("end", ["--until-caught-up", "--finish"])
def test_measured_statistics_are_a_table_of_the_job(here, tmp_path, end):
    assert here("init", tmp_path / "example")[0] == 0
    file = tmp_path / "example" / "job.toml"
    assert "assumed; watermark 10 s behind; measure them with" in here("explain", file)[1]
    code, printed, errors = here("run", file, end, "--statistics")
    assert code == 0, errors
    before, _, table = printed.partition("[statistics]\n")
    assert before.splitlines()[-1].startswith("total: ")
    file.write_text(f"{file.read_text()}\n[statistics]\n{table}")
    assert here("check", file)[0] == 0
    explained = here("explain", file)[1]
    assert "statistics: measured; watermark 10 s behind" in explained
    # Each stream has 600 tuples, one per second.
    assert re.search(r"b: +1 tuples/s", explained)
    assert re.search(r"a: +1 tuples/s", explained)
    assert tomllib.loads(table).keys() >= {"tuples_per_second", "bytes_per_tuple", "candidates_per_tuple"}


def test_a_run_without_tuples_has_no_statistics(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    file = tmp_path / "example" / "job.toml"
    lines = tmp_path / "metrics.jsonl"
    exported = ("--metrics", lines, "--prometheus", "0")
    code, printed, errors = here("run", file, "--until-caught-up", "--json", "--statistics", *exported)
    assert code == 0, errors
    assert re.search(r"metrics for Prometheus are at http://127\.0\.0\.1:\d+/metrics", errors)
    assert "ended" in json.loads(lines.read_text().splitlines()[-1])
    *_, total, measured = map(json.loads, printed.splitlines())
    assert total.keys() == {"total"}
    assert measured["statistics"]["origin"] == "measured"
    code, printed, errors = here("run", file, "--until-caught-up", "--statistics")
    assert code == 0, errors
    assert "[statistics]" not in printed
    assert "there are no statistics: [NOTHING_MEASURED]" in errors


def test_a_job_follows_its_policy(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    file = tmp_path / "example" / "job.toml"
    policy = """
        [model]
        units = [1, 1]
        [options]
        max_units = 24
        [policy]
        capacity = "12 kB"
        every = "1 millisecond"
        agree = 1
    """
    file.write_text(file.read_text().replace("[sink]", policy + "[sink]"))
    code, _, errors = here("run", file, "--until-caught-up")
    assert code == 0, errors
    assert th.control(tmp_path / "example" / "checkpoint").status()["requests"]
    assert ds.dataset(list_committed(tmp_path / "example" / "matches")).count_rows() == 30


def test_a_job_chooses_its_model_again(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    file = tmp_path / "example" / "job.toml"
    asked = """
        [model]
        name = "split"
        cores = 4
        [options]
        max_units = 12
        [rechoose]
        every = "1 millisecond"
        factor = 1.2
    """
    file.write_text(file.read_text().replace("[sink]", asked + "[sink]"))
    code, _, errors = here("run", file, "--until-caught-up")
    assert code == 0, errors
    assert re.search(r"thetastream: (Biclique|Matrix).* costs less by what the streams brought", errors), (
        errors
    )
    assert ds.dataset(list_committed(tmp_path / "example" / "matches")).count_rows() == 30
    # The units of this chain send messages.
    file.write_text(re.sub(r"split.*?4", 'chain"\nworkers = 3', file.read_text(), flags=re.DOTALL))
    for command in ("check", "explain", "run"):
        code, said, errors = here(command, file)
        assert code == 1
        assert "[CANNOT_SCALE] only a join of two streams whose units send no messages" in said + errors


def test_a_job_has_tasks_that_begin_and_end(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    folder = tmp_path / "example"
    file = folder / "job.toml"
    head, sources = file.read_text().split("[sources.bids]")
    sql = "SELECT task, bids.id AS bid, asks.id AS ask, result_time FROM tasks"
    tasks = """
        [tasks.crossed]
        on = "bids.symbol = asks.symbol AND bids.price >= asks.price"
        within = "1 minute"
        [options]
        max_tasks = 2
    """
    head = re.sub(r'"""\n.*"""', json.dumps(sql), head, flags=re.DOTALL)
    file.write_text(f"{head}[sources.bids]{sources}{tasks}")
    assert here("check", file)[:2] == (0, f"{file} is fine\n")
    code, plan, _ = here("explain", file)
    assert code == 0
    assert "tasks  " in plan
    assert "Task crossed" in plan
    code, _, errors = here("run", file, "--until-caught-up")
    assert code == 0, errors
    near = ["--on", "abs(bids.price - asks.price) <= 9", "--within", "1 second"]
    code, _, errors = here("add-task", file, "near", "--on", "bids.prize = asks.price")
    assert (code, "UNKNOWN_COLUMN" in errors) == (1, True)
    assert here("add-task", file, "near", *near)[0] == 0
    for hour in ("10", "11", "12", "13"):
        for stream in ("bids", "asks"):
            text = (folder / stream / "0.csv").read_text()
            new = folder / stream / f"{hour}.csv"
            new.write_text(text.replace("T09:", f"T{hour}:"))
            # Spark reads files in the order of their times.
            os.utime(new, (FIRST_FILE_S + int(hour),) * 2)
    code, _, errors = here("run", file, "--until-caught-up")
    assert code == 0, errors
    status = th.control(folder / "checkpoint").status()["tasks"]
    assert [*status] == ["crossed", "near"]
    found = ds.dataset(list_committed(folder / "matches")).to_table().to_pandas()
    first = found[found.result_time.dt.hour == 9].groupby("task").size()
    last = found[found.result_time.dt.hour == 13].groupby("task").size()
    assert first.to_dict() == {"crossed": 30}
    assert {*last.index} == {"crossed", "near"}
    assert last["near"] == 200 + 2 * 199
    assert here("remove-task", file, "crossed")[0] == 0
    file.write_text(file.read_text().replace('asks.price"', 'asks.prize"'))
    code, said, _ = here("check", file)
    assert code == 1
    assert re.search(r"job.toml:\d+: \[UNKNOWN_COLUMN\] column 'prize'", said)
    head, asks = file.read_text().split("[sources.asks]")
    asks = re.sub("event_time.*\ndelay.*", 'by_arrival = { column = "PRICE" }', asks)
    file.write_text(f"{head}[sources.asks]{asks}")
    code, said, errors = here("check", file)
    assert (code, "thetastream: [" in errors) == (1, False), errors
    assert "[COLUMN_EXISTS] column 'PRICE'" in said


def test_a_job_keeps_its_results_in_a_store_of_any_kind(here, spark, tmp_path, monkeypatch):
    # A kind from outside the package. Workers get its class by value, as from a notebook.
    monkeypatch.setitem(REGISTRY, "sqlite", sqlite_store.SqliteStore)
    cloudpickle.register_pickle_by_value(sqlite_store)
    staged, stage = [], write._stage
    monkeypatch.setattr(write, "_stage", lambda *given: staged.append(stage(*given)) or staged[-1])
    assert here("init", tmp_path / "example")[0] == 0
    file = tmp_path / "example" / "job.toml"
    sink = 'store = "sqlite"\npath = "kept.db"\ntable = "pairs"\nkey = "symbol"\nsnapshots = { size = 1 }'
    text = file.read_text().replace("b.price - a.price AS crossed", "a.price AS price")
    file.write_text(text.replace('format = "parquet"\npath = "matches"', sink))
    try:
        for _ in range(2):  # The second run finds nothing new.
            code, _, errors = here("run", file, "--until-caught-up")
            assert code == 0, errors
        assert staged[0] is not None, "units write their results themselves"
        address = f"sqlite:{tmp_path}/example/kept.db?table=pairs"
        assert here("verify", address)[0] == 0
        store = read_stores([address])["pairs"]
        order = [("bid", "ascending"), ("ask", "ascending")]
        kept = store.read().sort_by(order).to_pylist()
        assert len({(row["bid"], row["ask"]) for row in kept}) == len(kept) == 30
        assert store.read(key={"symbol": "AAA"}).num_rows == sum(row["symbol"] == "AAA" for row in kept) > 0
        # A statement keeps its results in a store too. Spark computes the last column, so it hands rows on.
        job = read_job(file)
        query = th.insert(
            spark,
            "INSERT INTO pairs " + job.sql.replace("a.price AS price", "a.price + 0 AS price"),
            {source.name: read(spark, source) for source in job.sources},
            {"pairs": {"store": "delta", "path": str(tmp_path / "pairs"), "key": "symbol"}},
            checkpoint=tmp_path / "checkpoint",
            trigger="available now",
        )
        query.awaitTermination()
        assert staged[-1] is None
        assert th.DeltaStore(str(tmp_path / "pairs")).read().sort_by(order).to_pylist() == kept
    finally:
        cloudpickle.unregister_pickle_by_value(sqlite_store)


def test_mistakes_exit_with_1_and_no_traceback(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    job = tmp_path / "example" / "job.toml"
    job.write_text(job.read_text().replace("b.price >=", "b.prize >="))
    code, found, errors = here("check", job)
    assert code == 1
    assert found.startswith(f"{job}:8:33: [UNKNOWN_COLUMN] column 'prize'")
    assert "Traceback" not in found + errors
    code, _, errors = here("explain", job)
    assert code == 1
    assert errors.startswith("thetastream: [UNKNOWN_COLUMN] column 'prize'")
    assert here("init", tmp_path / "example")[0] == 1
    code, _, errors = here("sql", "SELECT ONLINE * FROM r, s WITHIN", "--source", "r=x")
    assert (code, errors.count("\n")) == (1, 4)
    assert "nothing follows WITHIN, at line 1, column 27" in errors


def test_check_adds_what_only_spark_finds(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    job = tmp_path / "example" / "job.toml"
    right = job.read_text()
    text = right.replace("b.price - a.price AS crossed", "nofunction(b.prize) AS crossed, upper(a.symbol)")
    text = text.replace("b.symbol = a.symbol", "b.ts = a.price").replace('path = "bids"', 'path = "bid"')
    job.write_text(text.replace("checkpoint = ", "checkpiont = "))
    code, out, _ = here("check", job, "--json")
    assert code == 1
    lines = job.read_text().splitlines()
    found = {
        (f["condition"], lines[f["line"] - 1][(f["column"] or 1) - 1 :][:6])
        for f in map(json.loads, out.splitlines())
    }
    assert found == {
        *(("UNKNOWN_KEY", "checkp"), ("NO_SUCH_PATH", "path =")),
        *(("UNKNOWN_COLUMN", "prize)"), ("UNRESOLVED_ROUTINE", "nofunc"), ("TYPE_MISMATCH", "b.ts =")),
    }
    # An error of Spark in a source names the source, and the statement is checked all the same.
    text = right.replace("b.symbol,", "upper(b.symbol, 2),").replace(
        'delay = "10 seconds"', 'delay = "interval 10 secnds"', 1
    )
    job.write_text(text)
    code, out, _ = here("check", job, "--json")
    first, second = map(json.loads, out.splitlines())
    assert (first["section"], second["condition"]) == ("sources.bids", "WRONG_NUM_ARGS")
    assert first["message"].startswith("source 'bids': ")
    job.write_text(right.replace("b.symbol,", "upper(b.symbol),"))
    assert here("check", job)[:2] == (0, f"{job} is fine\n")


@pytest.mark.parametrize(
    ("sink", "items", "expected"),
    [
        (
            'format = "parquet"',
            "b.id, a.id",
            "[DUPLICATE_COLUMN] parquet files must have columns of different",
        ),
        ('format = "json"', "b.id, a.id AS ID", "and these are one name: ID, id; name them with AS"),
        ('store = "parquet"', "b.*, a.price", "[STORE_COLUMN] columns of a store must have different names"),
        ('format = "csv"', "b.id, a.id", None),
    ],
)
def test_results_that_a_sink_cannot_keep_are_refused(here, tmp_path, sink, items, expected):
    """Spark writes Parquet files of a stream with two columns of one name, and then it cannot read them."""
    assert here("init", tmp_path / "example")[0] == 0
    job = tmp_path / "example" / "job.toml"
    text = re.sub(r"SELECT ONLINE .*", f"SELECT {items}", job.read_text())
    job.write_text(text.replace('format = "parquet"', sink))
    code, said, _ = here("check", job)
    assert (code, (expected or "is fine") in said) == (int(expected is not None), True), said
    if expected:
        code, _, errors = here("run", job, "--until-caught-up")
        assert (code, expected in errors) == (1, True)
        assert not (tmp_path / "example" / "matches").exists()


def test_a_file_is_replayed_in_event_time_order_at_its_rate(spark, tmp_path):
    lines = [f"{number},2024-01-01 00:{number:02}:00" for number in range(40)]
    random.Random(1).shuffle(lines)
    (tmp_path / "trades.csv").write_text("\n".join(["id,ts", *lines]))
    spec = SourceSpec("trades", "replay", str(tmp_path / "trades.csv"), event_time="ts", rate=20)
    epochs = []
    query = (
        read(spark, spec)
        .writeStream.foreachBatch(lambda rows, _: epochs.append([row.id for row in rows.collect()]))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        end = time.monotonic() + 60
        while sum(map(len, epochs)) < 40 and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        query.stop()
    assert [number for ids in epochs for number in sorted(ids)] == list(range(40))


def write_endless_job(folder):
    """Write a job over two rate sources, which runs until it is stopped."""
    job = folder / "job.toml"
    job.write_text(
        f"""
        sql = "{SQL}"
        checkpoint = "checkpoint"
        trigger = "1 second"
        [sources.a]
        format = "rate"
        event_time = "timestamp"
        options = {{ rowsPerSecond = 20 }}
        [sources.b]
        format = "rate"
        event_time = "timestamp"
        options = {{ rowsPerSecond = 20 }}
        [sink]
        format = "parquet"
        path = "pairs"
        """
    )
    return job


@pytest.mark.slow
def test_a_signal_to_all_processes_lets_the_epoch_end(tmp_path):
    """systemd sends SIGTERM to each process of a service: program, JVM, daemon and workers."""
    job = write_endless_job(tmp_path)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = subprocess.Popen(command("run", job, "--json"), start_new_session=True, **pipes)
    first = []
    with killed_at_the_end(started):
        while not (first and first[-1].get("matched")):
            line = started.stdout.readline()
            assert line, started.stderr.read()
            first.append(json.loads(line))
        below = psutil.Process(started.pid).children(recursive=True)
        assert len(below) >= 3, "a JVM, a daemon and its workers"
        for process in [started, *below]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        rest, errors = started.communicate(timeout=240)
        assert not psutil.wait_procs(below, timeout=60)[1], "they end with the program"
    assert started.returncode == 0, errors
    assert "Traceback" not in errors
    assert "in the middle of an epoch" not in errors
    first += map(json.loads, rest.splitlines())
    total = first.pop()["total"]
    assert total["epochs"] == len(first)
    committed = [
        int(one.name) for one in (tmp_path / "checkpoint" / "commits").iterdir() if one.name.isdecimal()
    ]
    assert max(committed) >= first[-1]["epoch"] > 0


@pytest.mark.slow
def test_a_job_stops_at_sigterm_and_goes_on(tmp_path):
    job = write_endless_job(tmp_path)
    started = subprocess.Popen(
        command("run", job, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        first = []
        while not (first and first[-1].get("matched")):
            line = started.stdout.readline()
            assert line, started.stderr.read()
            first.append(json.loads(line))
        second = thetastream("run", job)
        assert second.returncode == 1
        assert "[CHECKPOINT_IN_USE]" in second.stderr
        assert str(started.pid) in second.stderr
    finally:
        started.send_signal(signal.SIGTERM)
        rest, errors = started.communicate(timeout=120)
    assert started.returncode == 0, errors
    first += map(json.loads, rest.splitlines())
    total = first.pop()["total"]
    assert (total["epochs"], total["matched"]) == (len(first), sum(one.get("matched", 0) for one in first))
    done = thetastream("run", job, "--json", "--for", "8s")
    assert done.returncode == 0, done.stderr
    after = [json.loads(line) for line in done.stdout.splitlines()]
    assert after[0]["epoch"] in (first[-1]["epoch"], first[-1]["epoch"] + 1)
    rows = ds.dataset(list_committed(tmp_path / "pairs")).to_table()
    found = Counter(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True))
    assert found
    assert set(found.values()) == {1}
    assert all(x == y + 1 for x, y in found)
