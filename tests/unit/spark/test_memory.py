"""The memory of a local session, warnings about too little of it, and the paragraph for what died of it."""

import os
import subprocess
import sys
import warnings
from collections.abc import Mapping

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

import thetastream as th
from thetastream.core.errors import FLAG
from thetastream.spark.session import failure, memory
from thetastream.spark.session.failure import explain_exit
from thetastream.spark.session.workers import prepare_environment

KILLED = "[STREAM_FAILED] Query pairs [id = 4f0c-1, runId = 9b] terminated: Python worker exited unexpectedly"
DIRECT = (
    "at x\nCaused by: io.netty.util.internal.OutOfDirectMemoryError: failed to allocate 536870912 byte(s)\n"
)
MALLOC = "Traceback\n  File x\npyarrow.lib.ArrowMemoryError: malloc of size 1125899906842624 failed\n at java"


@pytest.mark.parametrize(
    ("text", "who", "change"),
    [
        (KILLED, "A Python worker ended without an error", "fewer cores"),
        (DIRECT, "OutOfDirectMemoryError: failed to allocate 536870912", "spark.driver.memory"),
        (MALLOC, "ArrowMemoryError: malloc of size", "maxFilesPerTrigger"),
    ],
)
def test_what_died_of_memory_says_so_in_one_paragraph(text, who, change, monkeypatch) -> None:
    monkeypatch.delenv(FLAG, raising=False)
    shown = failure.describe_failure(PySparkException(text))
    assert shown is not None
    assert shown.startswith("[OUT_OF_MEMORY] ")
    assert "\n" not in shown
    assert who in shown
    assert change in shown
    assert failure.summarize_failure(text).startswith("[OUT_OF_MEMORY] ")
    assert ("It stopped the query pairs." in shown) == (text is KILLED)
    unwrapped = failure.unwrap_error(PySparkException(text))
    assert unwrapped is not None
    assert unwrapped.condition == "OUT_OF_MEMORY"


def test_a_jvm_starts_with_few_arenas_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that the user has chosen stays, and the environment of the program is as before."""
    monkeypatch.delenv("MALLOC_ARENA_MAX", raising=False)
    with prepare_environment():
        assert (os.environ["MALLOC_ARENA_MAX"], os.environ["PYTHONSAFEPATH"]) == ("2", "1")
    assert "MALLOC_ARENA_MAX" not in os.environ
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    with prepare_environment():
        assert os.environ["MALLOC_ARENA_MAX"] == "8"
    assert os.environ["MALLOC_ARENA_MAX"] == "8"


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)]
)
@pytest.mark.parametrize(
    ("code", "what"), [(52, "had no memory left"), (-9, "was killed"), (1, "[SPARK_ENDED]")]
)
def test_a_jvm_that_has_ended_says_why(error, code, what, monkeypatch) -> None:
    monkeypatch.delenv(FLAG, raising=False)
    end = f"import os; os._exit({code})" if code > 0 else "import os; os.kill(os.getpid(), 9)"
    gateway = type("Gateway", (), {"proc": subprocess.Popen([sys.executable, "-c", end])})
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    assert what in (failure.describe_failure(error) or "")
    assert failure.describe_failure(ValueError("7")) is None


@pytest.mark.parametrize(
    ("options", "cores", "is_local", "needed"),
    [
        ({}, 4, True, None),
        ({}, 8, True, "2048 MiB for 8 tasks"),
        ({"spark.driver.memory": "2g"}, 8, True, None),
        ({"spark.executor.memory": "512m", "spark.executor.cores": "4"}, 64, False, "1024 MiB for 4 tasks"),
        ({"spark.executor.memory": "1g", "spark.executor.cores": "4"}, 64, False, None),
    ],
)
def test_a_session_with_little_memory_for_its_tasks(
    options: Mapping[str, str],
    cores: int,
    is_local: bool,
    needed: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        memory.warn_of_tasks(options, cores, is_local)
    assert [warning.category for warning in found] == [th.errors.SmallMemoryWarning] * (needed is not None)
    assert needed is None or needed in str(found[0].message)


def test_a_window_that_the_machine_cannot_hold() -> None:
    machine = memory.read_machine_bytes()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for share, is_local in ((0.4, True), (0.6, True), (0.6, False)):
            memory.warn_of_state(share * machine, is_local)
    assert len(found) == 1
    assert "give a shorter window" in str(found[0].message)


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMITS", (tmp_path / "none", limit))
    limit.write_text("max\n")
    whole = memory.read_machine_bytes()
    limit.write_text("1073741824\n")
    assert memory.read_machine_bytes() == 1 << 30 < whole


def test_an_explanation_says_how_to_go_on_in_words_that_hold_for_batches_too() -> None:
    assert explain_exit(52).endswith("Start the query again: if it has a checkpoint, it continues from it.")
