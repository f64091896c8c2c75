"""What ``thetastream clean`` removes, and what it leaves alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.checkpoints import write_checkpoint
from thetastream.app import cli
from thetastream.app.job.checkpoint import lock
from thetastream.core.identity import Part
from thetastream.runtime.mailbox.files import Mailbox, Row, rows
from thetastream.runtime.observe import running
from thetastream.runtime.observe.running import RunningMarks, is_marked
from thetastream.runtime.shed_loads import LOADS, Loads
from thetastream.spark.sources.idle import REPORTS
from thetastream.spark.sources.mailbox import MailboxReader

QUERY = {"the model": Part("Ring(nodes=2)", "Ring(nodes=2)")}
MAIL: list[pa.RecordBatch] = [rows([Row(0, 0, None, b"", [(1, 1)])])]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A query with a mailbox that ended a day ago; epoch 6 reads what epoch 5 sent."""
    monkeypatch.setattr(running.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    reader = MailboxReader(str(tmp_path / "mail"), QUERY, [1])
    offset = {**reader.initialOffset(), "epoch": 5, "units": [0]}
    box = Mailbox(str(tmp_path / "mail"), offset["mailbox"])
    box.create(QUERY)
    for epoch in (4, 5, 6):
        box.post(epoch, 0, MAIL)
    (tmp_path / "mail" / box.name / "6" / ".1.0a1b2c3d").write_bytes(b"half")
    reports = tmp_path / "mail" / f"{REPORTS}x"
    reports.mkdir()
    for query in ("eb16ab27", "another"):
        (reports / f"{query}-join-0.json").write_text("{}")
    for query in ("eb16ab27", "another"):
        Loads(str(tmp_path / "mail"), f"{LOADS}{query}-join").publish(0, 6, 1000)
    Mailbox(str(tmp_path / "mail"), "another").create(QUERY)
    checkpoint = write_checkpoint(tmp_path / "c", 6, 6, offset)
    age(checkpoint)
    return {"checkpoint": checkpoint, "box": tmp_path / "mail" / box.name, "reports": reports}


def age(checkpoint: Path) -> None:
    before = time.time() - 86_400
    for path in (*checkpoint.glob("offsets/*"), *checkpoint.glob("commits/*")):
        os.utime(path, (before, before))


def clean(capsys: pytest.CaptureFixture[str], checkpoint: Path, *options: str) -> list[tuple[str, str]]:
    """Run the command; return what it printed: (what, path)."""
    cache = str(checkpoint.parent / "cache")
    code = cli.main(["clean", str(checkpoint), "--json", "--cache-folder", cache, *options])
    assert code == 0, capsys.readouterr().err
    found: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [(one["what"], one["path"]) for one in found]


def test_only_what_a_restart_does_not_need_is_removed(folders: Any, capsys: Any) -> None:
    box = folders["box"]
    expected = [
        ("messages that were read", f"{box}/4"),
        ("messages that were read", f"{box}/5"),
        ("temporary file", f"{box}/6/.1.0a1b2c3d"),
    ]
    assert sorted(clean(capsys, folders["checkpoint"], "--dry-run")) == expected
    assert (box / "4").exists()
    assert sorted(clean(capsys, folders["checkpoint"])) == expected
    assert sorted(path.name for path in box.rglob("*")) == ["0", "6", "mailbox.json"]
    assert clean(capsys, folders["checkpoint"]) == []


def test_an_epoch_that_runs_again_keeps_its_messages(folders: Any, capsys: Any) -> None:
    (folders["checkpoint"] / "commits" / "6").unlink()
    clean(capsys, folders["checkpoint"])
    assert sorted(path.name for path in folders["box"].iterdir()) == ["5", "6", "mailbox.json"]


def test_for_good_removes_all_of_the_query_and_nothing_of_others(folders: Any, capsys: Any) -> None:
    log = Path(f"{folders['checkpoint']}.log")
    log.write_text("what Spark said")
    removed = dict(clean(capsys, folders["checkpoint"], "--for-good"))
    gone = {"mailbox", "report about an idle stream", "loads for a shedder", "checkpoint", "log of the job"}
    assert set(removed) == gone
    assert [path.name for path in folders["reports"].parent.glob(f"{LOADS}*")] == [f"{LOADS}another-join"]
    assert not any(path.exists() for path in (folders["checkpoint"], folders["box"], log))
    assert [path.name for path in folders["reports"].iterdir()] == ["another-join-0.json"]
    assert (folders["box"].parent / "another" / "mailbox.json").exists()


def test_stale_segments_of_this_host_are_removed(folders: Any, capsys: Any) -> None:
    cache = folders["checkpoint"].parent / "cache"
    assert clean(capsys, folders["checkpoint"], "--for-good", "--dry-run")
    from thetastream.runtime.state.segment_cache import choose_cache_root

    root = choose_cache_root(str(cache))
    root.mkdir(parents=True)
    (root / "old").write_bytes(b"1234")
    (root / "new").write_bytes(b"1234")
    before = time.time() - 86_400
    os.utime(root / "old", (before, before))
    assert ("cached segment", str(root / "old")) in clean(capsys, folders["checkpoint"])
    assert [path.name for path in root.iterdir()] == ["new"]


def refusal(checkpoint: Path, capsys: Any, *options: str) -> str:
    assert cli.main(["clean", str(checkpoint), "--for-good", *options]) == 1
    assert (checkpoint / "offsets").exists()
    return str(capsys.readouterr().err)


def test_a_running_query_is_left_alone(folders: Any, capsys: Any) -> None:
    checkpoint = folders["checkpoint"]
    marks = RunningMarks()
    marks.mark("eb16ab27", "run")
    assert "[CHECKPOINT_IN_USE]" in refusal(checkpoint, capsys, "--min-age", "0s")
    marks.release("run")
    assert not is_marked("eb16ab27")
    with lock(str(checkpoint)):
        assert "belongs to a running job" in refusal(checkpoint, capsys)
    (checkpoint / "commits" / "6").touch()
    assert "it changed 0 s ago, so its query may be running" in refusal(checkpoint, capsys)
    assert cli.main(["clean", str(checkpoint), "--for-good", "--min-age", "0s"]) == 0


def test_a_mark_ends_with_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.tempfile, "gettempdir", lambda: str(tmp_path))
    program = (
        "import sys; from thetastream.runtime.observe.running import RunningMarks; marks = RunningMarks(); "
        "marks.mark('q', 'r'); print('marked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"marked\n"
    assert is_marked("q")
    mine = RunningMarks()
    mine.mark("q", "r")  # Two runs of one query: the second stops the first.
    mine.release("r")
    assert is_marked("q")
    other.kill()
    other.wait()
    assert not is_marked("q")
    assert not is_marked("unknown")
