"""``finish`` adds an epoch to the checkpoint of a stopped query, once, and only where it means something."""

import json
from pathlib import Path

import pytest

from tests.support.checkpoints import write_checkpoint
from thetastream.core.errors import QueryError, StateError
from thetastream.core.identity import Part
from thetastream.engine.clock import END_US, Clock
from thetastream.engine.counters import Counters
from thetastream.lowering.identity import EVENT_TIME, NO_COLUMN
from thetastream.runtime.epoch import _refuse_later
from thetastream.spark.end_of_input import end_input
from thetastream.spark.sources.identity import IdentityReader

TIMED = IdentityReader({f"{EVENT_TIME}'a'": Part("ts", "ts")}).initialOffset()
UNTIMED = IdentityReader({f"{EVENT_TIME}'a'": Part(NO_COLUMN, NO_COLUMN)}).initialOffset()


def test_the_next_epoch_reads_nothing_and_has_the_last_watermark(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 7, 7, {"logOffset": 3}, TIMED)
    before = (path / "offsets/7").read_text().splitlines()
    assert end_input(path)
    after = (path / "offsets/8").read_text().splitlines()
    assert after[2:] == before[2:]
    metadata = json.loads(after[1])
    assert metadata["batchWatermarkMs"] == END_US // 1000
    assert metadata["conf"] == json.loads(before[1])["conf"]


def test_an_input_ends_once(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 7, 7, {"logOffset": 3}, TIMED)
    assert end_input(path)
    assert not end_input(path)  # The epoch has not run yet.
    (path / "commits/8").write_text((path / "commits/7").read_text())
    assert not end_input(path)
    assert not (path / "offsets/9").exists()


def test_an_input_that_has_not_begun_does_not_end(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 7, 7, TIMED)
    assert not end_input(path)
    assert not (path / "offsets/8").exists()


@pytest.mark.parametrize(
    ("begun", "committed", "offsets", "condition"),
    [
        (-1, -1, [], "EPOCH_UNFINISHED"),
        (7, 6, [TIMED], "EPOCH_UNFINISHED"),
        (7, 7, [UNTIMED], "NO_WATERMARK"),
        (7, 7, [{"logOffset": 3}], "NO_WATERMARK"),
    ],
)
def test_what_cannot_end_is_refused_and_left_as_it_is(
    begun: int, committed: int, offsets: list[object], condition: str, tmp_path: Path
) -> None:
    path = write_checkpoint(tmp_path / "c", begun, committed, *offsets)
    with pytest.raises((QueryError, StateError), match=condition):
        end_input(path)
    assert not (path / f"offsets/{begun + 1}").exists()


def test_offsets_of_another_version_of_spark_are_refused(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path / "c", 7, 7, TIMED)
    text = (path / "offsets/7").read_text()
    (path / "offsets/7").write_text(text.replace("v1", "v3", 1))
    with pytest.raises(StateError, match=r"CHECKPOINT_VERSION.*v3"):
        end_input(path)


def test_rows_after_the_end_are_refused_and_rows_of_the_last_epoch_are_not() -> None:
    counters = Counters()
    counters.admit(0, "a", timely=1, late=2, newest_us=5)
    _refuse_later(Clock(3, END_US - 1, END_US), counters)
    with pytest.raises(StateError, match=r"\[INPUT_ENDED\].* 3 of a;"):
        _refuse_later(Clock(4, END_US, END_US), counters)
    _refuse_later(Clock(4, END_US, END_US), Counters())
