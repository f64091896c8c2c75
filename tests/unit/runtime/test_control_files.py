"""The control folder: lost, damaged and foreign files, and older copies of a checkpoint."""

import shutil
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.control_runs import RULES, Run
from tests.support.file_faults import limit_files
from thetastream.core.errors import StateError
from thetastream.models import Biclique, Matrix, Split
from thetastream.runtime.control.files import ControlFolder, ControlLinks
from thetastream.runtime.control.request import Request


def test_a_lost_folder_is_refused_once_there_was_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.spark.start()
    shutil.rmtree(tmp_path / "box")
    run.run()  # Nothing was lost, so the folder is made again.
    run.spark.control.put_request(Request(sizes={"units": (2, 2)}).write())
    run.run()
    assert run.spark.plan.version == 1
    run.run()
    shutil.rmtree(tmp_path / "box")
    run.spark.start()
    with pytest.raises(StateError, match=r"\[CONTROL_MISSING\]"):
        run.spark.log_offset()


def test_an_older_copy_of_the_checkpoint_goes_another_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans and marks of the way that was given up are not followed."""
    run = Run(tmp_path, monkeypatch, Split(2))
    run.run()
    run.spark.control.put_request(Request(model=Biclique((2, 1))).write())
    for _ in range(2):
        run.run()
    # 1. Copy the checkpoint, go on until the old units have drained, and change again.
    copied = deepcopy((run.spark.offsets, run.spark.state, run.found, run.kept, run.epoch))
    times = run.watermark, run.late
    for number in range(7):
        if number == 4:
            run.spark.control.put_request(Request(model=Matrix(2, 1)).write())
        run.run()
    assert run.spark.plan.version > 2
    # 2. Continue from the copy, with another change.
    run.spark.offsets, run.spark.state, run.found, run.kept, run.epoch = copied
    run.watermark, run.late = times
    run.spark.start()
    run.run()
    run.spark.control.put_request(Request(sizes={"units": (1, 3)}).write())
    for _ in range(9):
        run.run()
    assert run.spark.plan.newest.model == Biclique((1, 3))
    run.check()


def test_workers_read_the_plan_of_an_older_copy_and_not_the_one_that_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways change in the same epoch and to the same version, and workers live on."""
    run = Run(tmp_path, monkeypatch, Split(2))
    run.run()
    copied = deepcopy((run.spark.offsets, run.spark.state, run.found, run.kept, run.epoch))
    times = run.watermark, run.late
    run.spark.control.put_request(Request(model=Biclique((2, 1))).write())
    for _ in range(3):
        run.run()
    run.spark.offsets, run.spark.state, run.found, run.kept, run.epoch = copied
    run.watermark, run.late = times
    run.spark.start()
    run.spark.control.put_request(Request(model=Matrix(1, 3)).write())
    for _ in range(9):
        run.run()
    assert run.spark.plan.newest.model == Matrix(1, 3)
    run.check()


def test_other_files_in_the_control_folder_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    name = run.spark.control.put_request(Request(model=Split(2)).write())
    run.spark.control.put_request("[" * 100_000)
    (folder,) = (tmp_path / "box").glob("control-*/requests")
    for inside in ("plans", "drained"):
        (folder.parent / inside).mkdir()
        for foreign in ("README", "1-2.crc", "3", "1-2-3", ".4-5", "-6-7", "²-1"):
            (folder.parent / inside / foreign).write_bytes(b"\xff")
    for _ in range(8):
        run.run()
    assert [one.model for one in run.spark.plan.membership] == [Split(2)]
    assert run.spark.offsets[-1]["control"]["outcomes"][name] == ""
    run.check()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "membership": [{}]}', '"plan"'])
def test_a_damaged_plan_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.spark.control.put_request(Request(model=Split(2)).write())
    run.run()
    (plan,) = (tmp_path / "box").glob("control-*/plans/2-1")
    plan.write_text(text)
    with pytest.raises(StateError, match=r"\[CONTROL_MISSING\].*version 1|2-1 is damaged"):
        run.run()


def test_a_plan_whose_checksum_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a plan was believed, whatever it said."""
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.spark.control.put_request(Request(model=Split(2)).write())
    run.run()
    (plan,) = (tmp_path / "box").glob("control-*/plans/2-1")
    plan.write_text(plan.read_text().partition("\n")[0])
    with pytest.raises(StateError, match=r"\[CONTROL_MISSING\].*2-1 is damaged: it has no checksum"):
        run.run()


def test_a_mark_or_a_link_whose_checksum_is_gone_is_refused(tmp_path: Path) -> None:
    folder, links = ControlFolder(str(tmp_path), "x"), ControlLinks(str(tmp_path))
    folder.create()
    folder.mark_drained(3, 1, (10, 20))
    folder.mark_drained(4, 2)
    assert folder.read_arrived([(3, 1), (4, 2)]) == {1: (10, 20)}
    (mark,) = tmp_path.glob("control-x/drained/3-1")
    mark.write_text(mark.read_text().partition("\n")[0])
    with pytest.raises(StateError, match=r"\[CONTROL_MISSING\].*3-1 is damaged: it has no checksum"):
        folder.read_arrived([(3, 1)])
    links.write_link("query", "join", "0" * 32)
    (link,) = tmp_path.glob("control-queries/query-join")
    link.write_text(link.read_text().partition("\n")[0])
    with pytest.raises(StateError, match=r"\[CONTROL_MISSING\].*no checksum"):
        links.find("query", "join")


def test_a_full_disk_is_named_and_what_is_written_again_counts(tmp_path: Path) -> None:
    folder, links = ControlFolder(str(tmp_path), "x"), ControlLinks(str(tmp_path))
    folder.create()
    writes = {
        "the request.*Nothing was asked for": lambda: folder.put_request("{}"),
        "the plan.*continues from its checkpoint": lambda: folder.publish(3, {"version": 1}),
        "the mark.*continues from its checkpoint": lambda: folder.mark_drained(3, 1, (10, 20)),
        "the name of the control folder.*continues": lambda: links.write_link("query", "join", "0" * 32),
    }
    for what, write in writes.items():
        with limit_files(1), pytest.raises(StateError, match=rf"CONTROL_UNUSABLE.*{what}") as refused:
            write()
        assert "control-" in str(refused.value)
        assert "File too large" in str(refused.value)
        write()
    assert len(folder.list_requests()) == 1
    assert folder.list_plans() == [(3, 1)]
    assert folder.read_arrived([(3, 1)]) == {1: (10, 20)}
    assert links.find("query", "join") == "0" * 32


def test_a_driver_that_stood_still_passes_requests_that_another_one_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with FileNotFoundError. Spark says that another driver has taken the checkpoint over."""
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    gone, kept = (run.spark.control.put_request(Request(model=Split(n)).write()) for n in (2, 3))
    list_requests = ControlFolder.list_requests

    def list_and_stand_still(self: ControlFolder) -> list[str]:
        names = list_requests(self)
        (tmp_path / "box").joinpath(self.locate(f"requests/{gone}")).unlink(missing_ok=True)
        return names

    monkeypatch.setattr(ControlFolder, "list_requests", list_and_stand_still)
    for _ in range(3):
        run.run()
    assert run.spark.offsets[-1]["control"]["outcomes"] == {kept: ""}
    run.check()


def test_fewer_slots_than_in_use_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    run.run()
    run.spark.control.put_request(Request(sizes={"cores": 4}).write())
    run.run()
    run.spark.rules = replace(RULES, max_units=5)
    run.spark.start()
    with pytest.raises(StateError, match=r"\[MAX_UNITS\] max_units must be at least 6"):
        run.spark.log_offset()
    with pytest.raises(StateError, match=r"\[MAX_UNITS\]"):
        run.spark.reader.partitions(run.spark.offsets[-2], run.spark.offsets[-1])


def test_two_joins_of_one_meaning_in_a_query_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Run(tmp_path, monkeypatch, Biclique((1, 1))) for _ in range(2))
    first.run()
    with pytest.raises(StateError, match=r"\[CONTROL_TWICE\]"):
        second.run()


def test_messages_show_no_password_of_a_uri() -> None:
    folder = ControlFolder("s3://key:secret@bucket/mail?region=eu-west-1", "x")
    assert folder.where == "s3://bucket/mail/control-x"
