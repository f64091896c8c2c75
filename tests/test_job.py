"""Jobs: what a file may say, and running one, stopping it, going on."""

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.errors import PySparkException

from thetastream import cli
from thetastream.errors import InvalidQuery, QueryError
from thetastream.job.run import read, tell
from thetastream.job.spec import SourceSpec, parse_job, read_job

DOCS = Path(__file__).parent.parent / "docs"
SQL = "SELECT ONLINE a.value AS x, b.value AS y FROM a, b WHERE a.value = b.value + 1 WITHIN 5 seconds"
GOOD = {"sql": SQL, "checkpoint": "c", "sources": {"a": {"format": "rate"}, "b": {"format": "rate"}}}


def command(*arguments):
    return [sys.executable, "-m", "thetastream.cli", *map(str, arguments)]


def thetastream(*arguments, **options):
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=600, **options)


@pytest.fixture
def here(spark, monkeypatch, capfd):
    """Runs a command in this process and session; gives its exit code, output and errors."""

    @contextmanager
    def session(conf, log=None):
        try:
            yield spark
        except PySparkException as error:
            raise cli.translated(error) from None

    def run(*arguments):
        capfd.readouterr()
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = end.code
        return code, *capfd.readouterr()

    monkeypatch.setattr(cli, "session_of", session)
    kept = spark.conf.get("spark.sql.streaming.numRecentProgressUpdates")
    yield run
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", kept)


def committed(folder):
    """The files that Spark's sink has committed; an epoch cut short may have left others."""
    return [
        json.loads(line)["path"].removeprefix("file://")
        for log in (folder / "_spark_metadata").iterdir()
        if log.name.isdecimal()
        for line in log.read_text().splitlines()[1:]
    ]


# The file


def test_the_job_of_the_docs_is_well_formed(tmp_path):
    text = re.search(r"```toml\n(.*?)```", (DOCS / "cli.md").read_text(), re.DOTALL)
    (tmp_path / "bids").mkdir()
    job = parse_job(tomllib.loads(text[1]), tmp_path)
    assert [source.name for source in job.sources] == ["bids", "asks"]
    assert job.checkpoint == str(tmp_path / "checkpoint")
    assert job.sources[1].select[0] == "CAST(value:id AS INT) AS id"
    assert repr(job.model) == "Biclique(units=(2, 2))"


@pytest.mark.parametrize(
    ("change", "condition", "words"),
    [
        ({"checkpiont": "c"}, "UNKNOWN_KEY", "did you mean 'checkpoint'"),
        ({"sql": 7}, "BAD_VALUE", "a string"),
        ({"sql": "SELECT ONLINE a.value FROM a, c"}, "UNKNOWN_SOURCE", "'c'"),
        ({"sql": "SELECT a.value FROM a, b"}, "SYNTAX", "ONLINE"),
        ({"sql": f"EXPLAIN {SQL}"}, "EXPLAIN", "command of its own"),
        ({"sources": {"a": {"format": "csv"}, "b": {"format": "rate"}}}, "INVALID_QUERY", "schema"),
        ({"sources": {"a": {"format": "rate", "delay": "1 s"}}}, "INVALID_QUERY", "no event_time"),
        ({"sources": {"a": {}, "b": {"format": "rate"}}}, "MISSING_KEY", "format"),
        ({"sources": {"a": 5, "b": {"format": "rate"}}}, "BAD_VALUE", "[sources.a]"),
        ({"sink": {"format": "parquet"}}, "MISSING_KEY", "path"),
        ({"sink": {"format": "paper"}}, "BAD_VALUE", "'paper'"),
        ({"sink": {"mode": "upsert"}}, "BAD_VALUE", "'upsert'"),
        ({"model": {"units": 1.5}}, "BAD_UNITS", "1.5"),
        ({"spark": {"spark": {"sql": {"ansi": True}}}}, "BAD_VALUE", "quotes"),
        ({"sql": f"{SQL} GROUP BY a.value"}, "SINK_MODE", "update"),
        ({"sql": SQL.replace("a.value AS x, b.value AS y", "count(*)")}, "SINK_MODE", "update"),
        ({"sources": {"a": {"format": "rate", "rate": 5}, "b": {"format": "rate"}}}, "UNKNOWN_KEY", "replay"),
        ({"sources": {"a": {"format": "replay", "path": ".", "event_time": "t", "rate": 0},
                      "b": {"format": "rate"}}}, "BAD_VALUE", "at least 1"),
        ({"model": {"units": 0}}, "BAD_UNITS", "0"),
        ({"model": {"units": [1, 2, 3]}}, "BAD_UNITS", "(1, 2, 3)"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path, change, condition, words):
    with pytest.raises(QueryError) as error:
        parse_job({**GOOD, **change}, tmp_path)
    assert error.value.condition == condition
    assert words in str(error.value)


def test_all_mistakes_are_listed_at_once(tmp_path):
    with pytest.raises(InvalidQuery) as error:
        parse_job(
            {"sql": "SELECT", "sources": {"a": {"format": "json", "pth": "x"}}, "color": "red"}, tmp_path
        )
    assert Counter(problem.condition for problem in error.value.problems) == Counter(
        {"UNKNOWN_KEY": 2, "MISSING_KEY": 3, "SYNTAX": 1}
    )


def test_what_is_no_toml_is_named(tmp_path):
    (tmp_path / "job.toml").write_text("sql = ")
    for name in ("job.toml", "nothing.toml"):
        with pytest.raises(QueryError, match="JOB_FILE"):
            read_job(tmp_path / name)


def test_a_replay_needs_a_path_an_event_time_and_a_rate(tmp_path):
    with pytest.raises(InvalidQuery) as error:
        parse_job({**GOOD, "sources": {"a": {"format": "replay"}, "b": {"format": "rate"}}}, tmp_path)
    assert [problem.condition for problem in error.value.problems] == ["MISSING_KEY"] * 3


# Running


def test_the_commands_of_the_docs_run(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fence = re.search(r"```sh\n(.*?)```", (DOCS / "cli.md").read_text(), re.DOTALL)
    printed = {}
    for line in fence[1].splitlines():
        _, *arguments = shlex.split(line)
        code, printed[arguments[0]], errors = here(*arguments)
        assert code == 0, (line, errors)
    assert "biclique" in printed["models"]
    assert "is fine" in printed["check"]
    assert "b.price >= a.price" in printed["explain"]
    n_results = sum(int(n) for n in re.findall(r"([\d,]+) matches", printed["run"]))
    assert ds.dataset(committed(tmp_path / "example" / "matches")).count_rows() == n_results == 30
    statement = (
        "SELECT ONLINE count(*) AS n FROM bids b, asks a WHERE b.symbol = a.symbol AND b.price >= a.price"
    )
    sources = ("--source", "bids=example/bids", "--source", "asks=example/asks")
    assert here("sql", f"{statement} WITHIN 1 minute", "--json", *sources)[:2] == (0, '{"n":30}\n')


def test_mistakes_exit_with_1_and_no_traceback(here, tmp_path):
    assert here("init", tmp_path / "example")[0] == 0
    job = tmp_path / "example" / "job.toml"
    job.write_text(job.read_text().replace("b.price >=", "b.prize >="))
    code, _, errors = here("check", job)
    assert code == 1
    assert errors.startswith("thetastream: [UNKNOWN_COLUMN] column 'prize'")
    assert "line 3, column 33" in errors
    assert "Traceback" not in errors
    assert here("init", tmp_path / "example")[0] == 1
    code, _, errors = here("sql", "SELECT ONLINE * FROM r, s WITHIN", "--source", "r=x")
    assert (code, errors.count("\n")) == (1, 3)
    assert "nothing follows WITHIN at line 1, column 27" in errors


def test_a_file_is_replayed_in_event_time_order_at_its_rate(spark, tmp_path):
    lines = [f"{number},2024-01-01 00:{number:02}:00" for number in range(40)]
    random.Random(1).shuffle(lines)
    (tmp_path / "trades.csv").write_text("\n".join(["id,ts", *lines]))
    spec = SourceSpec("trades", "replay", str(tmp_path / "trades.csv"), event_time="ts", rate=10)
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


def test_lag_is_told_of_live_streams_only():
    epoch = {"epoch": 1, "tuples": 5, "tuples_per_s": 5, "seconds": 1.0, "watermark": None, "lag_s": 2.5}
    assert "2.5 s behind" in tell(epoch)
    assert "behind" not in tell({**epoch, "lag_s": 1e9})


@pytest.mark.slow
def test_a_job_stops_at_sigterm_and_goes_on(tmp_path):
    job = tmp_path / "job.toml"
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
    first += [json.loads(line) for line in rest.splitlines()]
    done = thetastream("run", job, "--json", "--for", "8s")
    assert done.returncode == 0, done.stderr
    after = [json.loads(line) for line in done.stdout.splitlines()]
    assert after[0]["epoch"] in (first[-1]["epoch"], first[-1]["epoch"] + 1)
    rows = ds.dataset(committed(tmp_path / "pairs")).to_table()
    found = Counter(zip(rows["x"].to_pylist(), rows["y"].to_pylist(), strict=True))
    assert found
    assert set(found.values()) == {1}
    assert all(x == y + 1 for x, y in found)
