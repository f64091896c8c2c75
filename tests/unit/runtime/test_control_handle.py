"""Handles on a controlled join, the command line, and the process of the control source."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.support.checkpoints import write_checkpoint
from tests.support.control_runs import RULES, FullHistoryRun, Run, TasksRun
from thetastream.app.cli import main
from thetastream.app.cli.serving import read_checkpoints
from thetastream.core.errors import QueryError, StateError
from thetastream.core.records import encode
from thetastream.core.shed import Shed
from thetastream.engine.running_tasks import RunningTask
from thetastream.joins.handle import control
from thetastream.models import Biclique, Split
from thetastream.runtime.control import files
from thetastream.runtime.control.plan import ControlPlan, encode_plan
from thetastream.runtime.control.request import Request
from thetastream.spark.sources.control import ControlSource
from thetastream.spark.sources.mailbox import MailboxReader


def test_status_knows_when_a_generation_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch reads two requests, and later plans are so many that old ones are removed."""
    monkeypatch.setattr(files, "KEPT_PLANS", 2)
    run = Run(tmp_path, monkeypatch, Split(2), shed=Shed("1 GB", "2 GB"))
    run.spark.rules = replace(RULES, can_shed=True)
    run.spark.start()
    run.run()
    run.spark.control.put_request(Request(sizes={"cores": 3}).write())
    for number in range(1, 9):
        run.spark.control.put_request(Request(shed_factor=number / 100).write())
        run.run()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("\n".join(["v1", "{}", json.dumps(run.spark.offsets[-1])]))
    (generation,) = control(tmp_path).status()["generations"]
    assert (generation["model"], generation["since"]) == ("Split(cores=3)", 2)
    page = ElementTree.fromstring(f"<div>{control(tmp_path)._repr_html_()}</div>")
    cells = ["".join(cell.itertext()) for cell in page.iter("td")]
    assert {"Split(cores=3)", "0.08", "accepted"} <= set(cells)
    assert len(run.spark.control.list_plans()) == 3


def test_status_names_the_units_that_move_tuples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FullHistoryRun(tmp_path, monkeypatch, Split(2))
    (tmp_path / "offsets").mkdir()
    run.run(40)
    run.spark.control.put_request(Request(sizes={"cores": 1}).write())
    seen = []
    for _ in range(20):
        run.run(n=0)
        text = "\n".join(["v1", "{}", json.dumps(run.spark.offsets[-1])])
        (tmp_path / "offsets" / "0").write_text(text)
        older = control(tmp_path).status()["generations"][0]
        seen.append((older["units"], older["moving"], older["drained"]))
    assert seen[0] == ([0, 1], [0, 1], [])
    assert ([0, 1], [], [0, 1]) in seen
    assert seen[-1] == ([2], [], [])


def test_a_handle_names_the_joins_if_none_is_meant(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    plan = encode_plan(ControlPlan.begin(Split(2)))
    joins = {"one": {"the condition": ["a.x<b.x", "a.x < b.x", "equal"]}, "two": {}}
    offsets = [{"query": query, "control": {"join": name, "plan": plan}} for name, query in joins.items()]
    lines = ["v1", "{}", *map(json.dumps, offsets)]
    (tmp_path / "offsets" / "0").write_text("\n".join(lines))
    assert control(tmp_path, "two").plan.newest.model == Split(2)
    with pytest.raises(QueryError, match=r"\[SEVERAL_JOINS\].*one \(a.x < b.x\), two, and none.*'three'"):
        control(tmp_path, "three")
    with pytest.raises(QueryError, match=r"\[SEVERAL_JOINS\].*, two; give"):
        control(tmp_path)


def test_the_command_line_scales_from_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)

    def run_epoch() -> None:
        run.run()
        lines = ["v1", "{}", json.dumps({"path": "a"}), json.dumps(run.spark.offsets[-1])]
        (checkpoint / "offsets" / str(run.epoch - 1)).write_text("\n".join(lines))

    (checkpoint / "metadata").write_text('{"id": "query"}')
    run_epoch()
    assert main(["scale", str(checkpoint), "--cores", "3"]) == 0
    assert main(["scale", str(checkpoint), "--units", "3"]) == 1
    assert "[CANNOT_SCALE] Split(cores=2) can change cores, not units" in capsys.readouterr().err
    assert main(["scale", str(checkpoint)]) == 1
    assert "[BAD_REQUEST]" in capsys.readouterr().err
    run_epoch()
    assert main(["scale", str(checkpoint), "--model", "matrix", "--rows", "2", "--columns", "1"]) == 0
    assert main(["status", checkpoint.as_uri()]) == 0
    version, _, old, new, first, second = capsys.readouterr().out.splitlines()[1:]
    assert version == "version       1"
    assert old == "generation    Split(cores=2) on units 0, 1 since epoch 0; units 0, 1 get no new tuples"
    assert new == "generation    Split(cores=3) on units 2, 3, 4 since epoch 2"
    assert first.endswith(": accepted")
    assert second.endswith(": waiting")
    for _ in range(8):
        run_epoch()
    assert main(["status", str(checkpoint), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in status["generations"]] == ["Matrix(rows=2, columns=1)"]
    run.check()
    # A policy, and a share to drop.
    assert main(["follow", str(checkpoint), "--set", "capacity=1 GB", "--set", "agree=2"]) == 0
    assert main(["follow", str(checkpoint), "--set", "capacty=1 GB"]) == 1
    assert "[POLICY] the policy two-phase-scaling has no setting 'capacty'; did" in capsys.readouterr().err
    assert main(["shed", str(checkpoint), "0.5"]) == 1
    assert "[BAD_REQUEST] only a join that was started with shed=" in capsys.readouterr().err
    run_epoch()
    assert main(["status", str(checkpoint)]) == 0
    assert "policy        two-phase-scaling capacity=1 GB agree=2" in capsys.readouterr().out
    assert main(["follow", str(checkpoint), "--stop"]) == 0
    run_epoch()
    assert main(["status", str(checkpoint), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["policy"] is None
    # What is left behind is cleaned with the rest.
    assert main(["inspect", str(checkpoint)]) == 0
    assert "change(s) of the units" in capsys.readouterr().out
    assert main(["clean", str(checkpoint), "--for-good", "--min-age", "0s"]) == 0
    assert [path for path in (tmp_path / "box").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["status"], "version       0"),
        (["scale", "--cores", "3"], "request"),
        (["follow"], "request"),
        (["shed", "0.5"], "[BAD_REQUEST] only a join that was started with shed="),
        (["inspect"], "the units; `thetastream status` shows them"),
        (["clean", "--dry-run", "--min-age", "0s"], "0 would be removed"),
        (["update-paths"], "0 files corrected"),
        (["remove-task", "near"], "[TASKS]"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_command_takes_a_job_file_in_place_of_its_checkpoint(
    command: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    write_checkpoint(tmp_path / "kept", 0, 0, {})
    run.run_in(tmp_path / "kept")
    job = tmp_path / "job.toml"
    # The rest of the file does not matter.
    job.write_text('checkpoint = "kept"\n[sources.gone]\npath = "gone"\n')
    name, *arguments = command
    main([name, str(job), *arguments])
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert read_checkpoints([str(job)]) == {"job": str(tmp_path / "kept")}
    job.write_text("[sources.gone]")
    assert main([name, str(job), *arguments]) == 1
    assert "[MISSING_KEY]" in capsys.readouterr().err


def test_the_command_line_ends_tasks_and_begins_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = TasksRun(tmp_path, monkeypatch, Biclique(1))

    def run_epoch() -> list[str]:
        run.run_in(tmp_path)
        return [*control(tmp_path).status()["tasks"]]

    run_epoch()
    assert main(["remove-task", str(tmp_path), "both"]) == 1
    assert "[TASKS] the task 'both' must go on" in capsys.readouterr().err
    assert main(["add-task", str(tmp_path), "wide", "--on", "a.k = b.k"]) == 1
    assert "is a checkpoint; name the job" in capsys.readouterr().err
    control(tmp_path).request(Request(add=RunningTask("drawn", join=run.write_task(3))))
    run_epoch()
    assert main(["remove-task", str(tmp_path), "both"]) == 0
    assert run_epoch() == ["drawn"]
    assert main(["add-task", str(tmp_path), "both", "--json"]) == 0
    assert run_epoch() == ["drawn", "both"]
    assert main(["status", str(tmp_path)]) == 0
    assert "task          drawn since epoch 2: drawn\ntask          both" in capsys.readouterr().out
    job = tmp_path / "job.toml"
    job.write_text(
        'sql = "SELECT a.value FROM a, b WHERE a.value = b.value"\ncheckpoint = "."\n'
        + "".join(f'[sources.{name}]\nformat = "rate"\n' for name in "ab")
    )
    assert main(["add-task", str(job), "wide", "--on", "a.value < b.value"]) == 1
    assert "job.toml must have [tasks]" in capsys.readouterr().err
    near = '[tasks.near]\non = "a.value < b.value"\n'
    job.write_text(
        job.read_text().replace("SELECT a.value FROM a, b WHERE a.value = b.value", "SELECT * FROM tasks")
        + near
    )
    assert main(["add-task", str(job), "wide", "--on", "a.value < b.value"]) == 1
    assert "write max_tasks under [options] of" in capsys.readouterr().err
    assert main(["remove-task", str(job), "drawn"]) == 0
    assert run_epoch() == ["both"]


def test_a_folder_without_epochs_is_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"thetastream: [NO_CHECKPOINT] {tmp_path} must be the checkpoint of a streaming query, "
        "and no epoch of a query has begun there\nMore: thetastream error NO_CHECKPOINT\n"
    )


def test_a_mailbox_without_control_refuses_units_that_have_changed() -> None:
    reader = MailboxReader("nowhere", {}, ())
    offset = {"control": {"plan": {"version": 2}}}
    with pytest.raises(StateError, match=r"\[CONTROL_NEEDED\] .* 2 time"):
        reader.latestOffset(offset, ReadAllAvailable())
    with pytest.raises(StateError, match=r"\[CONTROL_NEEDED\]"):
        reader.partitions(offset, offset)


def test_the_process_of_the_source_loads_the_package_for_a_request_only(tmp_path: Path) -> None:
    """It loads it in the background: the offset stays the same until the package is there."""
    packed = cloudpickle.dumps(ControlSource)
    (tmp_path / "source").write_bytes(packed)
    (tmp_path / "rules").write_text(json.dumps(encode(RULES)))
    done = subprocess.run(
        [sys.executable, "-c", SOURCE_PROCESS, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[]", "0", "1"]


SOURCE_PROCESS = """
import json, pathlib, pickle, sys, time
folder = pathlib.Path(sys.argv[1])
source = pickle.loads((folder / "source").read_bytes())
rules = json.loads((folder / "rules").read_text())
model = {"name": "split", "cores": 1}
first = [{"since": 0, "model": model, "slots": [0]}]
plan = {"version": 0, "membership": first, "shed_factor": 0, "leaving": {}}
settings = {"root": str(folder), "join": "j", "rules": rules}
options = {"query": {}, "settings": settings, "plan": plan, "partitions": None}
reader = source({name: json.dumps(value) for name, value in options.items()}).streamReader(None)
look = lambda offset: reader.latestOffset(offset, reader.getDefaultReadLimit())
offset = look(reader.initialOffset())
reader.partitions(offset, offset)
assert look(offset) == offset
print([name for name in sys.modules if name.startswith("thetastream")])
requests = folder / f"control-{offset['control']['name']}" / "requests"
requests.mkdir()
(requests / "1").write_text('{"format": 1, "sizes": {"cores": 2}}')
time.sleep(0.2)
print(look(offset)["control"]["plan"]["version"])
until, found = time.monotonic() + 100, offset
while found == offset and time.monotonic() < until:
    time.sleep(0.2)
    found = look(offset)
print(found["control"]["plan"]["version"])
"""
