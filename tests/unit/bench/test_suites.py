"""Suites of the benchmarks: their tasks, their rows, and the counts of sparse history."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

from bench.__main__ import main, parse
from bench.core import backfill, check, data, index_shapes, questions, spark, units
from bench.core.data import Shape, Task, draw_epoch
from bench.core.join_sql import Cells, write_join
from bench.core.suites import SUITES, list_pairs, list_tasks

DAY_US = 24 * 3600 * 1_000_000


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "ROOT", tmp_path)
    return tmp_path


def test_every_engine_is_a_row() -> None:
    suite = SUITES["handshake"]
    tasks = list_tasks(suite, parse(["handshake", "--window", "1000", "--epoch", "500"]))
    assert list(tasks) == ["thetastream", "spark", "duckdb"]
    assert {(task.shape.window, task.shape.epoch, task.warmup) for task in tasks.values()} == {(1000, 500, 4)}
    assert list_pairs(suite, tasks) == [("thetastream", "spark"), ("thetastream", "duckdb")]


def test_files_by_units_stand_beside_the_other_ways() -> None:
    suite = SUITES["files"]
    tasks = list_tasks(suite, parse(["files"]))
    assert list_pairs(suite, tasks) == [("units", "rows"), ("units", "parquet"), ("units", "copy")]


def test_ways_into_files_continue_from_one_full_window(root: Path) -> None:
    tasks = list_tasks(SUITES["files"], parse(["files", "--window", "3000", "--epoch", "1000"]))
    shape = tasks["units"].shape
    assert {row: task.full_window for row, task in tasks.items()} == {
        "units": shape.full_window({}),
        "rows": shape.full_window({}),
        "parquet": shape.full_window({}),
        "copy": None,
    }
    assert shape.full_window({}).is_relative_to(root)
    assert shape.full_window({"m": 2}) != shape.full_window({})


def test_counts_begin_with_the_epoch_from_which_a_run_continues(root: Path) -> None:
    shape = Shape("equi", 1000, 1000, 4, seed=1)
    data.ensure(shape)
    counts = check.expected(shape, 4, lambda text: None)
    assert len(set(counts)) > 1
    for first, is_equal in ((2, True), (0, False)):
        found = {"results_by_epoch": counts[2:], "first_epoch": first}
        assert check.verify(shape, found, lambda text: None)["is_equal"] == is_equal


def test_index_shapes_find_the_same_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    asked = parse(["index-shapes", "--epoch", "256", "--repeat", "1"])
    assert index_shapes.main(asked, lambda text: None) == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "sphere" in line]
    assert [index.strip() for _, index in rows] == ["grid", "scan"]


def test_units_without_spark_find_as_many_pairs_as_duckdb(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = parse(["units", "--window", "600", "--epoch", "400", "--repeat", "1"])
    assert units.main(asked, lambda text: None) == 0
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "| 600 |" in line]
    assert [index.strip() for _, index in rows] == ["grid", "hash", "hash_sorted", "sorted"]


@pytest.mark.parametrize(("name", "engines"), [("equi", 1), ("aggregate", 2), ("backfill", 1)])
def test_a_quick_run_has_the_engines_of_its_suite(name: str, engines: int) -> None:
    asked = parse([name, "--quick"])
    assert len(asked.engines) == engines
    assert (asked.epochs, asked.repeat) == (6, 1)


def test_a_rate_needs_a_streaming_engine() -> None:
    tasks = list_tasks(SUITES["handshake"], parse(["handshake", "--rate", "1000"]))
    assert list(tasks) == ["thetastream", "spark"]
    assert {task.rate for task in tasks.values()} == {1000}


def test_sparse_history_stands_beside_handshake_in_epochs_of_the_same_size() -> None:
    suite = SUITES["backfill"]
    tasks = list_tasks(suite, parse(["backfill"]))
    assert {task.shape.epoch for task in tasks.values()} == set(backfill.EPOCHS)
    assert len(tasks) == 4 * len(backfill.EPOCHS)
    pairs = list_pairs(suite, tasks)
    assert len(pairs) == 3 * len(backfill.EPOCHS)
    for row, other in pairs:
        assert tasks[row].shape.epoch == tasks[other].shape.epoch
        assert tasks[row].shape.workload in {workload.name for workload in backfill.WORKLOADS}
        assert tasks[other].shape.workload == "handshake"


@pytest.mark.parametrize("name", [workload.name for workload in backfill.WORKLOADS])
def test_counts_of_sparse_history_are_those_of_a_loop(name: str, root: Path) -> None:
    shape = Shape(name, backfill.WINDOW, 200, 3, seed=1)
    data.ensure(shape)
    left, right = (
        [
            (value, ts.value // 1000)
            for epoch in range(shape.epochs)
            for value, ts in draw_epoch(shape, side, epoch).select(["v", "ts"]).to_pandas().to_numpy()
        ]
        for side in (0, 1)
    )
    reach = 500_000 if name == "backfill-short" else 50_000
    found = sum(abs(v - w) <= reach and abs(t - u) <= shape.window_us for v, t in left for w, u in right)
    counts = check.expected(shape, shape.epochs, lambda text: None)
    assert sum(counts) == found > 200
    assert check.expected(shape, 2, lambda text: None) == counts[:2]


def test_bursts_are_as_many_events_a_day_and_leave_the_night_empty() -> None:
    shape = Shape("backfill-bursts", backfill.WINDOW, 2 * backfill.DAY, 1, seed=1)
    ts = draw_epoch(shape, 0, 0)["ts"].cast("int64").to_numpy() - data.FIRST_TS_US
    assert np.bincount(ts // DAY_US).tolist() == [backfill.DAY] * 2
    assert (ts % DAY_US).max() < 16 / 24 * DAY_US
    assert (np.diff(ts) > 0).all()
    assert np.diff(ts).max() > 8 / 24 * DAY_US


@pytest.mark.parametrize("error", [AnalysisException, StreamingQueryException])
def test_a_refusal_is_a_result_and_another_error_is_not(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []

    class Session:
        def stop(self) -> None:
            stopped.append(True)

    def refuse(message: str) -> dict[str, Any]:
        def start(*_: object) -> None:
            raise error(message)

        monkeypatch.setattr(spark, "streams", lambda *_, **__: {})
        monkeypatch.setattr(spark.Query, "start", start)
        task = Task("spark", Shape("inequality", 10, 10, 1, 1), 0, 0, 1)
        return spark.measure(task, spark.Query(Session(), lambda streams: None, "a form"))

    words = "Stream-stream join without equality predicate is not supported"
    assert refuse(f"{words}.;\nthe plan") == {"refused": f"{words}.;", "form": "refused"}
    with pytest.raises(error, match="no column"):
        refuse("there is no column x")
    assert stopped == [True, True]


def test_cells_do_not_change_the_join() -> None:
    import duckdb

    connection = duckdb.connect()
    random = np.random.default_rng(1)
    for alias in "lr":
        values = ", ".join(f"({v}, to_timestamp({t}))" for v, t in random.integers(0, 60, (80, 2)))
        connection.execute(f"CREATE TABLE {alias}_rows AS SELECT * FROM (VALUES {values}) AS rows(v, ts)")
    cells = Cells("v", "v", 3, 4), Cells("ts", "ts", 5_000_000, 7_000_000)
    found = [
        connection.execute(
            write_join("count(*)", "lr", ("l_rows", "r_rows"), "abs(l.v - r.v) <= 3", 5_000_000, some)
        ).fetchall()
        for some in ((), cells[:1], cells, [replace(cell, width=1.5 * cell.reach) for cell in cells])
    ]
    assert found[0][0][0] > 20
    assert found == [found[0]] * 4


def test_questions_by_key_are_answered_as_duckdb_answers_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ROWS", 500)
    monkeypatch.setattr(questions, "VALUES", 1000)
    assert main(["questions", "--quick", "--json", str(tmp_path / "found.json")]) == 0
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["kind"] for row in rows] == ["th.query", "DuckDB over plain Parquet"] * 8
    assert [row["store"] for row in rows] == ["ParquetStore"] * 8 + ["DeltaStore"] * 8
    assert all(row["is_correct"] for row in rows)
