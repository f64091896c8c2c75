"""What ``rescale`` refuses, and when it leaves Spark alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

import thetastream as th
from tests.support.checkpoints import write_checkpoint
from thetastream.app.cli import checkpoints, main
from thetastream.app.cli.jobs import write_template
from thetastream.app.job.rescaling import Rescaling, rescale
from thetastream.core.identity import CHOSEN, Part
from thetastream.runtime.observe import running
from thetastream.runtime.observe.running import RunningMarks
from thetastream.spark.sources.identity import IdentityReader

MODEL = Part("3:Split(cores=2)", "Split(cores=2)", CHOSEN)


class Manager:
    """It takes the place of Spark, and keeps what it was asked for."""

    def __init__(self, error: PySparkException | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, int]] = []

    def repartition(self, checkpoint: str, partitions: int, enforce_exactly_once_sink: bool) -> None:
        assert enforce_exactly_once_sink
        if self.error is not None:
            raise self.error
        self.asked.append((checkpoint, partitions))


def open_session(error: PySparkException | None = None) -> Any:
    return SimpleNamespace(_streamingCheckpointManager=Manager(error), version="4.3.0")


def set_partitions(checkpoint: Path, epoch: int, partitions: int) -> None:
    path = checkpoint / "offsets" / str(epoch)
    path.write_text(path.read_text().replace('partitions": "3"', f'partitions": "{partitions}"'))


def refuse(checkpoint: Path, partitions: Any = 2, session: Any = None) -> str:
    session = session or open_session()
    with pytest.raises(th.ThetastreamError) as refused:
        rescale(session, checkpoint, partitions)
    assert not getattr(session, "_streamingCheckpointManager", Manager()).asked
    return str(refused.value)


def test_models_that_the_planner_chose_are_named(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 4, 4, IdentityReader({"the model": MODEL}).initialOffset())
    spark = open_session()
    assert rescale(spark, checkpoint, 2) == Rescaling(3, 2, ("Split(cores=2)",))
    assert spark._streamingCheckpointManager.asked == [(str(checkpoint), 2)]


def test_the_same_number_changes_nothing(tmp_path: Path) -> None:
    spark = open_session()
    assert rescale(spark, write_checkpoint(tmp_path / "c", 4, 4), 3) == (3, 3, ())
    assert not spark._streamingCheckpointManager.asked


def test_an_interrupted_epoch_is_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 5, 4)
    assert "[EPOCH_UNFINISHED] epoch 5 of" in refuse(checkpoint)
    assert rescale(open_session(), checkpoint, 3) == (3, 3, ())
    assert "[EPOCH_UNFINISHED]" in refuse(write_checkpoint(tmp_path / "new", 0, -1))


def test_an_interrupted_call_is_completed_with_its_number(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 5, 4)
    set_partitions(checkpoint, 5, 8)
    assert "rescale of " in refuse(checkpoint, 2)
    assert "to 8 partitions was interrupted" in refuse(checkpoint, 3)
    spark = open_session()
    assert rescale(spark, checkpoint, 8) == (3, 8, ())
    assert spark._streamingCheckpointManager.asked == [(str(checkpoint), 8)]


def test_a_query_that_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "RELEASE_S", 0.0)
    checkpoint = write_checkpoint(tmp_path / "c", 4, 4)
    (checkpoint / "metadata").write_text(json.dumps({"id": f"query-{tmp_path.name}"}))
    marks = RunningMarks()
    marks.mark(f"query-{tmp_path.name}", "run")
    try:
        assert "[CHECKPOINT_IN_USE]" in refuse(checkpoint)
    finally:
        marks.release("run")


def test_sessions_numbers_and_folders_are_refused_by_name(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "c", 4, 4)
    assert "[CANNOT_RESCALE] rescale needs" in refuse(checkpoint, 2, SimpleNamespace(version="4.2.0"))
    for partitions in (0, True, "2"):
        assert "[BAD_VALUE]" in refuse(checkpoint, partitions)
    assert "[NO_CHECKPOINT]" in refuse(tmp_path / "none")
    said = refuse(checkpoint, 2, open_session(PySparkException("[STATE_REPARTITION] no. SQLSTATE: 5\nstack")))
    assert said.endswith(f"Spark cannot give {checkpoint} 2 partitions: [STATE_REPARTITION] no.")


def test_a_job_file_says_what_rescale_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_template(tmp_path / "example")
    asked: list[Any] = []

    @contextmanager
    def remember_settings(settings: dict[str, Any]) -> Iterator[str]:
        asked.append(settings)
        yield "spark"

    def remember(*given: Any) -> Rescaling:
        asked.append(given)
        return Rescaling(2, 8, ())

    monkeypatch.setattr(checkpoints, "open_session", remember_settings)
    monkeypatch.setattr(checkpoints, "rescale", remember)
    folder = tmp_path / "example"
    command = ["rescale", str(folder / "job.toml"), "--partitions", "8"]
    assert main([*command, "--conf", "spark.master=local"]) == 0
    settings = {"spark.sql.session.timeZone": "UTC", "spark.master": "local"}
    assert asked == [settings, ("spark", str(folder / "checkpoint"), 8, str(folder / "matches"))]
    assert main([*command, "--file-sink", "elsewhere"]) == 0
    assert asked[-1] == ("spark", str(folder / "checkpoint"), 8, "elsewhere")
