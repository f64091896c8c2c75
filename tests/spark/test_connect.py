"""Spark Connect: batch, streams, counters, plans and errors are those of a classic session."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support import connect_session, faults

FILES, ROWS = 3, 150


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("connect")
    faults.write_streams(made, FILES, ROWS)
    return made


def run_session(folder: Path, *parts: str) -> dict[str, Any]:
    """Return what a session has printed, and under the key ``log`` what it and its server have logged."""
    environment = faults.environment_of_processes()
    environment = {key: value for key, value in environment.items() if not key.startswith("PYSPARK_GATEWAY")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.connect_session", str(folder), *parts],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    with faults.killed_at_the_end(process):
        output, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors[-6000:]
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return {**answer, "log": errors}


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Any]:
    return run_session(folder)


def bag(pairs: list[list[Any]]) -> Counter[tuple[Any, Any]]:
    return Counter((a, b) for a, b in pairs)


def test_the_session_is_a_connect_session(said: dict[str, Any]) -> None:
    assert said["session"].startswith("pyspark.sql.connect")


@pytest.mark.parametrize("sink", ["batch", "store", "columns"])
def test_same_bag_as_the_oracle(said: dict[str, Any], folder: Path, sink: str) -> None:
    assert bag(said[sink]) == faults.oracle(folder)


@pytest.mark.slow
def test_same_bag_through_a_chain(folder: Path) -> None:
    said = run_session(folder, "chain")
    assert bag(said["chain"]) == faults.oracle(folder)
    assert said["steps"] == ["MapInArrow read_and_route_a_to_units", "MapInArrow route_b_to_units"]


@pytest.mark.slow
def test_a_table_that_changes_and_is_larger_than_a_host(folder: Path) -> None:
    """Each epoch reads its version, and the server logs no error."""
    said = run_session(folder, "table")
    (first, one, nbytes), (second, two, _) = said["versions"]
    assert (first, one, second, two) == (0, 1, 1, 2)
    assert all(0 < used < 100_000 < nbytes for used in said["used"])
    expected: Counter[Any] = Counter()
    for number, file in enumerate(sorted((folder / "a").iterdir())[:2]):
        for row in pq.read_table(file).to_pylist():
            met = [
                n
                for n in range(3000)
                if n / 10 <= row["x"] < n / 10 + (2 * number + 3) / 20 and row["y"] > 10
            ]
            expected.update((row["id"], n) for n in met or [None])
    assert faults.read_committed(folder / "table-out") == expected
    assert expected.total() > 2 * ROWS
    assert "PATH_NOT_FOUND" not in said["log"]


@pytest.mark.slow
def test_answers_per_tuple(folder: Path) -> None:
    said = run_session(folder, "left")
    expected = faults.oracle(folder, connect_session.SHORT_S, how="left", has_residual=True)
    assert bag(said["left"]) == expected
    assert any(partner is None for _, partner in expected)


@pytest.mark.slow
def test_units_change_by_the_query_and_by_its_checkpoint(folder: Path) -> None:
    said = run_session(folder, "scaled")
    assert bag(said["store"]) == faults.oracle(folder)
    assert said["scaled"] == [["accepted", "accepted"], 2, "Biclique(units=(1, 1))"]


def test_a_plan_takes_few_round_trips(said: dict[str, Any]) -> None:
    assert 10 < said["requests"] <= 24


def test_units_write_into_a_store(said: dict[str, Any]) -> None:
    assert said["way"].startswith("units")


def test_file_sink_with_a_python_predicate(said: dict[str, Any], folder: Path) -> None:
    assert faults.read_committed(faults.Job(str(folder)).sink) == faults.oracle(folder)


def test_texts_in_columns_and_tables_of_pandas(said: dict[str, Any]) -> None:
    assert said["words"] == 1


def test_metrics(said: dict[str, Any], folder: Path) -> None:
    epochs = said["metrics"]
    assert sum(epoch["stored"] for epoch in epochs) == 2 * FILES * ROWS
    assert sum(epoch["matched"] for epoch in epochs) == faults.oracle(folder).total()
    assert max(len(epoch["units"]) for epoch in epochs) == 4
    assert all(epoch["plan"]["model"] for epoch in epochs if epoch["units"])


def test_explain(said: dict[str, Any]) -> None:
    for stage in ("== Parsed ==", "== Physical ==", "stream of 4 columns, event time ts"):
        assert stage in said["explain"]


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        ("unknown column", "[UNKNOWN_COLUMN]"),
        ("no watermark", "[NO_WATERMARK]"),
        ("bad window", "[INVALID_DURATION]"),
        ("state store", "[STATE_STORE_PROVIDER]"),
        ("brackets", "[COLUMN_CONDITION]"),
        ("no time zone", "[EVENT_TIME_TYPE] the event time of stream 'b' must be TIMESTAMP"),
    ],
)
def test_refused_by_name(said: dict[str, Any], problem: str, name: str) -> None:
    assert said[problem].startswith(name)
