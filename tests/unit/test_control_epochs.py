"""The control source, routers and units as Spark runs them, with a crash at every step of a change."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from tests.support import oracle
from tests.support.controlled import COLUMNS, CONDITION, SCHEMA, UNIT
from tests.support.spark_epochs import Crash, SparkEpochs, count_pairs
from thetastream.cli import main
from thetastream.control.change import Rules
from thetastream.control.plan import ControlPlan
from thetastream.control.request import Request
from thetastream.core.condition import TIME, Bound, Dimension
from thetastream.core.shed import Shed
from thetastream.core.sides import Side
from thetastream.engine.shedding import Shedding
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.errors import QueryError, StateError
from thetastream.models import Biclique, Matrix, Split
from thetastream.spark.control import files
from thetastream.spark.control.handle import control
from thetastream.spark.control.source import ControlSource

RULES = Rules(9, ("hash", "range"))
STEP_US = 1000
"""Spark's watermark has milliseconds."""
WINDOW_MS = 12
"""The window of the condition in the time of these tests: one unit of ``t`` is a millisecond."""


def scaled_unit() -> Any:
    """Return the query of the random schedules, with event times in milliseconds."""
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -WINDOW_MS * STEP_US), Bound(TIME, WINDOW_MS * STEP_US))
    condition = replace(CONDITION, window=window)
    return replace(UNIT, condition=condition, archive_period_us=2 * STEP_US)


class Run:
    """Epochs with some tuples each, the requests of a test, and the nested loop."""

    def __init__(
        self, folder: Path, patch: pytest.MonkeyPatch, model: Any, seed: int = 1, shed: Shed | None = None
    ) -> None:
        self.unit = scaled_unit()
        shedding = None if shed is None else Shedding(shed, self.unit.condition.sides)
        spec = TwoStreamSpec(self.unit, model)
        self.spark = SparkEpochs(spec, model, RULES, folder, patch, shedding)
        self.counters: list[dict[str, Any]] = []
        self.rng, self.found, self.kept = random.Random(seed), Counter(), ([], [])
        self.epoch, self.watermark, self.late = 0, None, None

    def draw(self, n: int) -> list[pa.RecordBatch]:
        batches = []
        for side in Side:
            rows = [
                {
                    "id": 1000 * self.epoch + 100 * side + i,
                    "t": (10 * self.epoch + self.rng.randint(-9, 5)) * STEP_US,
                    "k": self.rng.randint(0, 2),
                    "v": self.rng.randint(0, 9),
                }
                for i in range(n)
            ]
            self.kept[side].extend(oracle.timely(rows, self.late, "t"))
            batches.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        return batches

    def run(self, n: int = 8, crashes: tuple[int, ...] = ()) -> None:
        batches = self.draw(n)
        self.spark.log_offset()
        for crash in crashes:
            with pytest.raises(Crash):
                self.spark.run(batches, self.watermark, crash)
            self.spark.start()
        results = self.spark.run(batches, self.watermark)
        self.counters = [
            json.loads(text) for one in results for text in one.column(-1).to_pylist() if text is not None
        ]
        self.found += count_pairs(results, len(COLUMNS))
        self.late = self.watermark
        self.epoch += 1
        self.watermark = max(self.watermark or 0, (10 * self.epoch - 15) * STEP_US) or None

    def check(self) -> None:
        assert self.found == oracle.join(self.spark.spec.unit.condition, *self.kept)
        assert len(self.found) > 50


def test_a_change_and_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.run()
    name = run.spark.control.put_request(Request(model=Matrix(1, 2)).write())
    shapes = []
    for _ in range(8):
        run.run()
        shapes.append([len(one.slots) for one in run.spark.plan.membership])
    run.check()
    # The last tuples that the old units store are of epoch 2. The watermark of epoch 6 is a window past them.
    assert shapes == [[2, 2]] * 5 + [[2]] * 3
    # What has ended leaves nothing: no state, no timers, no files of requests and marks.
    keys = run.spark.fitted.keys
    assert sorted(run.spark.state["value"]) == sorted(keys[slot] for slot in run.spark.plan.newest.slots)
    assert not any(run.spark.state["timers"][keys[slot]] for slot in (0, 1))
    assert not any(run.spark.state["parts"][keys[slot]] for slot in (0, 1))
    assert run.spark.offsets[-1]["control"]["outcomes"] == {name: ""}
    assert run.spark.control.list_requests() == []
    assert run.spark.control.list_drained() == set()
    # Without news, the offset stays the same, so Spark runs no epoch for it.
    run.spark.log_offset()
    assert run.spark.offsets[-1] == run.spark.offsets[-2]


# From 4 on, only the tuples differ, which follow from the number too.
@pytest.mark.parametrize("crash", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 6, 7))])
@pytest.mark.parametrize("model", [Biclique((2, 1)), Split(3)], ids=repr)
def test_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, crash: int
) -> None:
    """Epochs that crash in the middle of a change, twice, end as if they had not."""
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)), seed=crash)
    run.run()
    run.spark.control.put_request(Request(model=model).write())
    run.run(crashes=(min(crash, 3),))  # The source, a unit, or the end of the epoch that publishes the plan.
    run.run(crashes=(min(crash, 4), min(crash + 1, 4)))
    for _ in range(6):
        run.run(crashes=(min(crash, 3),))
    # A run forgets the marks of earlier runs, so a generation ends in the second epoch of a run.
    run.run()
    run.run()
    assert [one.model for one in run.spark.plan.membership] == [model]
    run.check()


def test_tuples_that_are_late_are_late_at_new_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new unit hears the watermark of the epoch before its first tuples."""
    run = Run(tmp_path, monkeypatch, Split(1))
    for _ in range(5):
        run.run()
    run.spark.control.put_request(Request(model=Split(2)).write())
    run.run(n=0)
    late = run.late
    assert late is not None
    keys, values = run.spark.fitted.keys, run.spark.state["value"]
    assert [json.loads(values[keys[slot]][0])["heard"] for slot in (1, 2)] == [[5, late]] * 2
    rows = [{"id": n, "t": late, "k": 0, "v": 0} for n in range(4)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    run.spark.log_offset()
    run.spark.run([batch, batch.slice(0, 0)], run.watermark)
    assert [json.loads(values[keys[slot]][0])["state"]["segments"] for slot in (1, 2)] == [[], []]


SHEDDERS = {
    "state": Shed("300 B", "1200 B", base=0.2),
    "lag": Shed("1 ms", "30 ms", load="lag"),
    "probes": Shed("1 ms", "30 ms", load="lag", what="probes"),
}


@pytest.mark.parametrize(
    ("shed", "crash"),
    [
        # A run crashes at this step and at the next one, so every second step is enough here.
        pytest.param(shed, crash, marks=[pytest.mark.slow] * ((number + crash) % 2), id=f"{name}-{crash}")
        for number, (name, shed) in enumerate(SHEDDERS.items())
        for crash in range(6)
    ],
)
def test_a_shedder_drops_the_same_tuples_after_a_crash_at_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shed: Shed, crash: int
) -> None:
    """A run with crashes and one without have the same results and counts, also while units change."""
    outcomes = []
    for name, crashes in (("calm", ()), ("crashing", (crash, crash + 1))):
        run = Run(tmp_path / name, monkeypatch, Biclique((2, 1)), seed=crash, shed=shed)
        shed_tuples = shed_probes = arrived = 0
        for epoch in range(10):
            run.spark.began_ms = 10 * epoch + 12 + epoch % 3
            if epoch == 4:
                run.spark.control.put_request(Request(sizes={"units": (1, 3)}).write())
            most = len(run.spark.offsets and run.spark.plan.slots) + 1
            run.run(n=20, crashes=tuple(min(step, most) for step in crashes))
            shed_tuples += sum(unit["shed"] for unit in run.counters)
            shed_probes += sum(unit["shed_probes"] for unit in run.counters)
            arrived += sum(unit["left"] + unit["right"] + unit["late"] for unit in run.counters)
        assert shed_tuples + arrived == 2 * 20 * 10
        outcomes.append((run.found, shed_tuples, shed_probes))
        assert run.spark.plan.newest.model == Biclique((1, 3))
        assert run.found < oracle.join(run.spark.spec.unit.condition, *run.kept)
    assert outcomes[0] == outcomes[1]
    found, shed_tuples, shed_probes = outcomes[0]
    assert found.total() > 50
    assert (shed_tuples > 20, shed_probes > 20) == (not shed.sheds_probes, shed.sheds_probes)


def test_subgroups_grow_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, Biclique((2, 1), (2, 1), "hash"))
    run.run()
    for units in (((1, 2), 1), ((1, 2), 2), ((2, 1), 1)):
        run.spark.control.put_request(Request(sizes={"units": units}).write())
        for number in range(5):
            run.run(crashes=(2,) * (number < 2))  # A generation ends in the second epoch of a run.
    assert run.spark.plan.newest.model == Biclique((3, 1), (2, 1), "hash")
    for _ in range(4):
        run.run()
    run.check()


def test_a_request_drops_a_share_whatever_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, monkeypatch, Split(2), shed=Shed("1 GB", "2 GB"))
    run.spark.rules = replace(RULES, can_shed=True)
    run.spark.start()
    counts = []
    for epoch in range(9):
        if epoch in (1, 5):
            factor = {1: 0.5, 5: 0.0}[epoch]
            run.spark.control.put_request(Request(shed_factor=factor).write())
        run.run(n=100, crashes=(1, 2))
        counts.append(sum(unit["shed"] for unit in run.counters))
    # A request holds from the epoch after the one that reads it.
    assert [n > 0 for n in counts] == [False, False, True, True, True, True, False, False, False]
    assert sum(counts) / 800 == pytest.approx(0.5, abs=0.08)
    name = run.spark.control.put_request('{"format": 1, "shed_factor": 2}')
    run.run()
    assert "must be a number from 0 to 1" in run.spark.offsets[-1]["control"]["outcomes"][name]


def test_a_join_without_a_shedder_drops_nothing_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, monkeypatch, Split(2))
    run.run()
    name = run.spark.control.put_request(Request(shed_factor=0.5).write())
    run.run()
    assert (
        "[BAD_REQUEST] only a join that was started with shed"
        in (run.spark.offsets[-1]["control"]["outcomes"][name])
    )


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


def test_runs_until_all_input_is_read_end_generations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with ``availableNow`` asks for offsets until nothing is new, so it sees its own marks."""
    run = Run(tmp_path, monkeypatch, Biclique((1, 1)))
    run.run()
    run.spark.control.put_request(Request(model=Matrix(1, 2)).write())
    for _ in range(9):
        run.spark.start()
        run.spark.reader.prepareForTriggerAvailableNow()
        run.run()
        run.spark.log_offset()
        has_news = run.spark.offsets.pop() != run.spark.offsets[-1]
        if has_news:
            run.run(n=0)
    assert [one.model for one in run.spark.plan.membership] == [Matrix(1, 2)]
    run.check()


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
    assert len(run.spark.control.list_plans()) == 3


def test_a_handle_names_the_joins_if_none_is_meant(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    plan = ControlPlan.begin(Split(2)).as_json()
    lines = ["v1", "{}", *(json.dumps({"control": {"join": name, "plan": plan}}) for name in ("one", "two"))]
    (tmp_path / "offsets" / "0").write_text("\n".join(lines))
    assert control(tmp_path, "two").plan.newest.model == Split(2)
    with pytest.raises(QueryError, match=r"\[SEVERAL_JOINS\].*one, two, and none of them is 'three'"):
        control(tmp_path, "three")
    with pytest.raises(QueryError, match=r"\[SEVERAL_JOINS\].*one, two; give"):
        control(tmp_path)


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
    assert main(["status", str(checkpoint)]) == 0
    version, _, old, new, first, second = capsys.readouterr().out.splitlines()[1:]
    assert version == "version       1"
    assert old == "generation    Split(cores=2) on units 0, 1 since epoch 0; 0, 1 store no new tuples"
    assert new == "generation    Split(cores=3) on units 2, 3, 4 since epoch 2"
    assert first.endswith(": accepted")
    assert second.endswith(": waiting")
    for _ in range(8):
        run_epoch()
    assert main(["status", str(checkpoint), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in status["generations"]] == ["Matrix(rows=2, columns=1)"]
    run.check()
    # What is left behind is cleaned with the rest.
    assert main(["inspect", str(checkpoint)]) == 0
    assert "change(s) of the units" in capsys.readouterr().out
    assert main(["clean", str(checkpoint), "--for-good", "--min-age", "0s"]) == 0
    assert [path for path in (tmp_path / "box").rglob("*") if path.is_file()] == []


def test_the_process_of_the_source_loads_the_package_for_a_request_only(tmp_path: Path) -> None:
    """It loads it in the background: the offset stays the same until the package is there."""
    packed = cloudpickle.dumps(ControlSource)
    (tmp_path / "source").write_bytes(packed)
    done = subprocess.run(
        [sys.executable, "-c", SOURCE_PROCESS, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["[]", "0", "1"]


SOURCE_PROCESS = """
import json, pathlib, pickle, sys, time
from pyspark.sql.streaming.datasource import ReadAllAvailable
folder = pathlib.Path(sys.argv[1])
source = pickle.loads((folder / "source").read_bytes())
rules = {"max_units": 4, "routings": [], "never_expires": [False, False]}
model = {"name": "split", "cores": 1}
first = [{"since": 0, "model": model, "slots": [0]}]
plan = {"version": 0, "membership": first, "shed_factor": 0, "leaving": {}}
settings = {"root": str(folder), "join": "j", "rules": rules}
options = {"query": {}, "settings": settings, "plan": plan, "partitions": None}
reader = source({name: json.dumps(value) for name, value in options.items()}).streamReader(None)
look = lambda offset: reader.latestOffset(offset, ReadAllAvailable())
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
