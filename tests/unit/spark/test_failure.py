"""Errors of units are shown in one paragraph, and lines that Spark prints in every run are left out."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import thetastream as th
from thetastream.app.cli import shared_arguments
from thetastream.core.errors import FLAG
from thetastream.spark.session import failure
from thetastream.spark.session.jvm import without_chatter
from thetastream.spark.session.workers import choose_worker_python

CAPTURED = """[STREAM_FAILED] Query prices [id = 4f0c-1, runId = 9b-2] terminated with exception: Job aborted
Traceback (most recent call last):
  File "matching.py", line 12, in call
thetastream.core.errors.PredicateError: [PREDICATE_RAISED] predicate 'near' raised ValueError: no (on 3 rows)
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.fixture(autouse=True)
def without_flag(monkeypatch):
    monkeypatch.delenv(FLAG, raising=False)


def test_our_error_is_found_inside_the_exception_of_spark(monkeypatch):
    shown = failure.describe_failure(PySparkException(CAPTURED))
    assert shown.startswith(
        "thetastream.core.errors.PredicateError: [PREDICATE_RAISED] predicate 'near' raised"
    )
    assert "It stopped the query prices." in shown
    assert "\n" not in shown
    monkeypatch.setenv(FLAG, "1")
    assert failure.describe_failure(PySparkException(CAPTURED)) is None


@pytest.mark.parametrize(
    "error", [PySparkException("[X] no table"), ValueError("7"), th.errors.StateError("X", "y")]
)
def test_other_errors_are_shown_as_they_are(error, capsys, monkeypatch):
    passed = []
    monkeypatch.setattr(sys, "excepthook", lambda *given: passed.append(given))
    failure.show_failures_shortly()
    failure.show_failures_shortly()
    sys.excepthook(type(error), error, None)
    assert passed == [(type(error), error, None)]
    sys.excepthook(PySparkException, PySparkException(CAPTURED), None)
    assert len(passed) == 1
    assert capsys.readouterr().err.count("PREDICATE_RAISED") == 1


def test_notebooks_show_the_paragraph_and_all_other_errors_as_they_are(monkeypatch):
    calls, shown = [], []
    shell = SimpleNamespace(
        set_custom_exc=lambda kinds, handler: calls.append((kinds, handler)),
        showtraceback=lambda found, tb_offset: calls.append(found),
        _showtraceback=lambda kind, error, lines: shown.append((kind, *lines)),
    )
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    failure.show_failures_shortly()
    ((kinds, handler),) = calls
    assert kinds == (PySparkException, Py4JError, ConnectionError)
    handler(shell, PySparkException, PySparkException(CAPTURED), None)
    ((kind, paragraph),) = shown
    assert kind == PySparkException
    assert paragraph.startswith("thetastream.core.errors.PredicateError: [PREDICATE_RAISED]")
    other = PySparkException("[X] no table")
    handler(shell, PySparkException, other, None)
    assert calls[1:] == [(PySparkException, other, None)]


def test_the_command_line_prints_the_error_of_the_unit():
    shown = str(failure.unwrap_error(PySparkException(CAPTURED)))
    assert shown == "[PREDICATE_RAISED] predicate 'near' raised ValueError: no (on 3 rows)"
    assert failure.unwrap_error(PySparkException("[X] no table\n at java")) is None


@pytest.mark.parametrize(
    ("code", "said"), [(-9, "OUT_OF_MEMORY.*was killed"), (1, "SPARK_ENDED.*exit code 1")]
)
def test_a_command_whose_jvm_was_killed_says_so(code, said, monkeypatch):
    """It ended with ConnectionRefusedError, also while the session was stopped."""

    def refuse(*_):
        raise ConnectionRefusedError(111, "Connection refused")

    ended = SimpleNamespace(wait=lambda timeout: code)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=ended))
    monkeypatch.setattr(shared_arguments, "start_session", lambda *_: SimpleNamespace(stop=refuse))
    with pytest.raises(th.ThetastreamError, match=said), shared_arguments.open_session({}):
        refuse()
    with shared_arguments.open_session({}):  # It has ended after the last word of the command.
        pass


def test_processes_that_start_inside_write_all_but_chatter(capfd):
    lines = [
        "WARNING: Using incubator modules: x",
        "Starting Streaming TransformWithStateInPandas Python worker.",
        "",
        "a real error",
        "",
        "the end",
    ]
    code = f"import sys; sys.stderr.write({chr(10).join(lines)!r} + chr(10))"
    with without_chatter():
        child = subprocess.Popen([sys.executable, "-c", code])
    child.wait()
    written = ""
    for _ in range(100):  # a thread passes the lines on
        written += capfd.readouterr().err
        if "the end" in written:
            break
        time.sleep(0.05)
    assert written == "a real error\n\nthe end\n"


@pytest.mark.parametrize(
    ("options", "environment", "is_set"),
    [
        ({"spark.master": "local[2]"}, {}, True),
        ({}, {}, True),
        ({}, {"SPARK_HOME": "/opt/spark"}, False),
        ({"spark.master": "yarn"}, {}, False),
        ({"spark.master": "local", "spark.pyspark.python": "python3.12"}, {}, False),
        ({"spark.master": "local"}, {"PYSPARK_PYTHON": "mine"}, False),
    ],
)
def test_local_workers_run_the_python_of_the_driver(monkeypatch, options, environment, is_set):
    for name in ("PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    choose_worker_python(options)
    assert (os.environ.get("PYSPARK_PYTHON") == sys.executable) is is_set
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)


def test_a_builder_is_configured_for_this_python(monkeypatch):
    monkeypatch.setenv("PYSPARK_PYTHON", "kept")
    th.configure(SparkSession.builder.master("local[1]"))
    assert os.environ["PYSPARK_PYTHON"] == "kept"


def test_a_file_that_is_gone_says_how_to_continue():
    gone = (
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/t/part-0.parquet. File"
    )
    text = (
        f"[STREAM_FAILED] Query q [id = 1-2, runId = 3-4] terminated with exception: Job aborted: {gone} does"
    )
    shown = failure.describe_failure(RuntimeError(text))
    assert shown is not None
    assert shown.startswith(
        "thetastream.core.errors.QueryError: [FILE_GONE] the query reads the file file:/t/part-0"
    )
    assert "start the query with its checkpoint" in shown
    # A batch has no checkpoint, and Spark's own message says what to do.
    assert failure.describe_failure(RuntimeError(gone)) is None


def test_a_parquet_file_of_another_type_says_what_to_write():
    mismatch = (
        "[STREAM_FAILED] Query q [id = 1-2, runId = 3-4] terminated with exception: "
        "[FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Encountered error while reading file "
        "file:/t/part-0.parquet. Data type mismatches when reading Parquet column [{}]. "
        "Expected Spark type {}, actual Parquet type {}. SQLSTATE: KD001"
    )
    nanos = failure.find_error(mismatch.format("ts", "timestamp", "INT64"))
    assert nanos is not None
    assert nanos.startswith(
        "QueryError: [FILE_TYPE] the schema of the DataFrame says that the column ts is TIME"
    )
    assert "the file file:/t/part-0.parquet has INT64 there" in nanos
    assert 'BIGINT in the schema, and make the event time with th.from_nanos("ts")' in nanos
    other = failure.find_error(mismatch.format("x", "decimal(10,2)", "BINARY"))
    assert other is not None
    assert other.endswith("Write the type of the file in the schema, and cast the column behind it")
