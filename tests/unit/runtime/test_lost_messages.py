"""Messages that are lost after their epoch is committed and before the driver lists them."""

import json
import random
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.control_runs import Epochs, FullHistoryRun
from tests.unit.runtime.test_control_epochs import SENDING
from thetastream.core.errors import StateError
from thetastream.models import Biclique, Matrix, Split
from thetastream.runtime.control.request import Request

EPOCHS, WITH_TUPLES = 20, 14


def find_messages(box: Path) -> list[Path]:
    """List the message files of the newest epoch that has any."""
    epochs = [path for path in box.glob("*/*") if path.name.isdigit() and any(path.iterdir())]
    return sorted(max(epochs, key=lambda path: int(path.name)).iterdir()) if epochs else []


def list_senders(run: Epochs) -> list[bool]:
    """List for each unit whether it sent messages in its last epoch."""
    return [json.loads(value[0]).get("has_sent", False) for value in run.spark.state["value"].values()]


def is_mixed(run: Epochs) -> bool:
    """Whether some units sent messages in their last epoch and others did not.

    The others may send in the next epoch before one of the first refuses it.
    """
    return len({*list_senders(run)}) == 2


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
    if "remove the newest offset" in str(error.value):
        run.spark.offsets.pop()
    for path, data in lost.items():
        path.write_bytes(data)
    run.spark.start()


# Units of ATR may send messages, but these do not.
@pytest.mark.sampled(9)
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
        if number >= struck and not has_struck and files and (is_mixed(run) or not is_all):
            has_struck = True
            lose_and_refuse(run, batches, files if is_all else [chance.choice(files)])
        if len(run.spark.offsets) == number:
            run.spark.log_offset()
        run.end_epoch(run.spark.run(batches, run.watermark))
    assert has_struck
    run.check()


@pytest.mark.parametrize("seed", [19, *(pytest.param(n, marks=pytest.mark.slow) for n in (33, 37))])
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


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", ["ring", "limited", "ctr", "chain"])
@pytest.mark.parametrize("seed", [0, 1, 2, 4])
def test_an_epoch_that_begins_again_with_another_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    """Where its time is the number of an epoch, what units sent in the refused epoch is not read later."""
    kind, model, _ = SENDING[name]
    run = kind(tmp_path, monkeypatch, model, seed)
    run.spark.is_timed = True
    run.spark.start()
    run.spark.began_ms = 1_790_000_000_000
    chance = random.Random(seed)
    struck, has_struck = chance.randrange(1, 6), False
    for number in range(EPOCHS):
        run.spark.began_ms += 1000
        batches = run.draw(chance.choice([0, 2, 12]) if number < WITH_TUPLES else 0)
        files = find_messages(tmp_path / "box")
        if number >= struck and not has_struck and files and is_mixed(run):
            has_struck = True
            lose_and_refuse(run, batches, files)
            run.spark.began_ms += 60_000
        run.spark.log_offset()
        run.end_epoch(run.spark.run(batches, run.watermark))
    assert has_struck
    run.check()


@pytest.mark.parametrize("name", ["ring", "chain"])
def test_messages_of_a_later_epoch_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A checkpoint comes back without its mailbox, which has gone on."""
    kind, model, _ = SENDING[name]
    run = kind(tmp_path, monkeypatch, model, 1)
    run.run(n=0)
    run.run(n=0)
    assert not any(list_senders(run))
    state, offsets = deepcopy(run.spark.state), deepcopy(run.spark.offsets)
    while not any(list_senders(run)) or len(run.spark.offsets) < 4:
        run.run()
    run.spark.state, run.spark.offsets = state, offsets
    run.spark.start()
    with pytest.raises(StateError, match=r"MAILBOX_DAMAGED.*epoch 2 must read messages of an epoch before"):
        run.run()
