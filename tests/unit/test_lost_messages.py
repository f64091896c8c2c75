"""Messages that are lost after their epoch is committed and before the driver lists them."""

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_runs import Epochs
from tests.unit.test_control_epochs import SENDING
from thetastream.control.request import Request
from thetastream.errors import StateError

EPOCHS, WITH_TUPLES = 16, 10


def lose_messages(chance: random.Random, box: Path) -> None:
    """Remove a message file of the newest epoch, or all of them."""
    epochs = [path for path in box.glob("*/*") if path.name.isdigit() and any(path.iterdir())]
    folder = max(epochs, key=lambda path: int(path.name))
    if chance.random() < 0.3:
        shutil.rmtree(folder)
    else:
        chance.choice(sorted(folder.iterdir())).unlink()


def refuse_epoch(run: Epochs, batches: Any) -> None:
    """Run an epoch that must be refused, as a new run of Spark would find it, and do what the error says."""
    with pytest.raises(StateError, match="MAILBOX_DAMAGED") as error:
        run.spark.run(batches, run.watermark)
    if offset := re.search(r"remove offsets/(\d+) from the checkpoint", str(error.value)):
        assert int(offset[1]) == len(run.spark.offsets) - 1
        run.spark.offsets.pop()


@pytest.mark.sampled(3)
# Units of ATR may send messages, but these do not.
@pytest.mark.parametrize("name", [name for name in SENDING if name != "atr"])
@pytest.mark.parametrize("seed", range(6))
def test_an_epoch_without_messages_that_were_sent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    """The epoch is refused, and exact when the files are back; units change meanwhile."""
    kind, model, sizes = SENDING[name]
    chance = random.Random(seed)
    run = kind(tmp_path, monkeypatch, model, seed)
    changed, struck = chance.randrange(2, 6), chance.randrange(2, 10)
    box, saved, has_struck = tmp_path / "box", tmp_path / "saved", False
    for number in range(EPOCHS):
        if number == changed:
            run.spark.control.put_request(Request(sizes=sizes).write())
        batches = run.draw(8 if number < WITH_TUPLES else 0)
        if number >= struck and not has_struck and any(box.glob("*/[0-9]*/*")):
            has_struck = True
            shutil.copytree(box, saved)
            lose_messages(chance, box)
            run.spark.log_offset()
            refuse_epoch(run, batches)
            shutil.rmtree(box)
            saved.rename(box)
            run.spark.start()
        if len(run.spark.offsets) == number:
            run.spark.log_offset()
        run.end_epoch(run.spark.run(batches, run.watermark))
    assert has_struck
    run.check()
