"""Messages that are lost after their epoch is committed and before the driver lists them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_runs import Epochs, FullHistoryRun
from tests.unit.test_control_epochs import SENDING
from thetastream.control.request import Request
from thetastream.errors import StateError
from thetastream.models import Biclique, Matrix, Split

EPOCHS, WITH_TUPLES = 20, 14


def find_messages(box: Path) -> list[Path]:
    """List the message files of the newest epoch that has any."""
    epochs = [path for path in box.glob("*/*") if path.name.isdigit() and any(path.iterdir())]
    return sorted(max(epochs, key=lambda path: int(path.name)).iterdir()) if epochs else []


def list_senders(run: Epochs) -> list[bool]:
    """List for each unit whether it sent messages in its last epoch."""
    return [json.loads(value[0]).get("has_sent", False) for value in run.spark.state["value"].values()]


def lose_and_refuse(run: Epochs, batches: Any, files: Sequence[Path]) -> None:
    """Run an epoch after these messages were lost, which must be refused, and do what the error says.

    What units have written until one of them refused the epoch stays in the mailbox.
    """
    lost = {path: path.read_bytes() for path in files}
    for path in lost:
        path.unlink()
    run.spark.log_offset()
    with pytest.raises(StateError, match="MAILBOX_DAMAGED") as error:
        run.spark.run(batches, run.watermark)
    if "remove the newest file N of offsets" in str(error.value):
        run.spark.offsets.pop()
    for path, data in lost.items():
        path.write_bytes(data)
    run.spark.start()


@pytest.mark.sampled(3)
# Units of ATR may send messages, but these do not.
@pytest.mark.parametrize("name", [name for name in SENDING if name != "atr"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_all", [False, True])
def test_an_epoch_without_messages_that_were_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_all: bool, name: str, seed: int
) -> None:
    """The epoch is refused, and exact when the files are back; units change meanwhile."""
    kind, model, sizes = SENDING[name]
    chance = random.Random(seed)
    run = kind(tmp_path, monkeypatch, model, seed)
    changed, struck = chance.randrange(2, 6), chance.randrange(2, 5)
    has_struck = False
    for number in range(EPOCHS):
        if number == changed:
            run.spark.control.put_request(Request(sizes=sizes).write())
        batches = run.draw(chance.choice([0, 2, 12]) if number < WITH_TUPLES else 0)
        files = find_messages(tmp_path / "box")
        # A unit that sent nothing in this epoch may send in the next one before another unit refuses it.
        is_mixed = len({*list_senders(run)}) == 2
        if number >= struck and not has_struck and files and (is_mixed or not is_all):
            has_struck = True
            lose_and_refuse(run, batches, files if is_all else [chance.choice(files)])
        if len(run.spark.offsets) == number:
            run.spark.log_offset()
        run.end_epoch(run.spark.run(batches, run.watermark))
    assert has_struck
    run.check()


@pytest.mark.parametrize("seed", [19, 33, 37])
def test_without_event_time_all_units_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Without event time, no timer calls the units, and the single tuple of an epoch calls only some.

    With these seeds, an epoch without the lost messages was once committed before their senders were called.
    """
    run = FullHistoryRun(tmp_path, monkeypatch, Biclique((2, 1)), seed)
    chance = random.Random(seed)
    nth_epoch = chance.randrange(3)
    has_struck = False
    for number in range(24):
        if number == 3:
            model = chance.choice([Split(3), Matrix(2, 2), Biclique((3, 2))])
            run.spark.control.put_request(Request(model=model).write())
        files = [] if has_struck else find_messages(tmp_path / "box")
        if any(list_senders(run)) and files:
            nth_epoch -= 1
        if files and nth_epoch < 0:
            has_struck = True
            batches = list(run.draw(1))
            stream = (seed + number) % 2
            run.kept[1 - stream].pop()
            batches[1 - stream] = batches[1 - stream].slice(0, 0)
            lose_and_refuse(run, batches, files)
        else:
            batches = list(run.draw(chance.choice([1, 8])))
        run.spark.log_offset()
        run.end_epoch(run.spark.run(batches, run.watermark))
    assert has_struck
    run.check()
