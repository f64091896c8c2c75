"""The control source, routers and units as Spark runs them, with a crash at every step of a change."""

import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.control_runs import AntiRun, ChainRun, FullHistoryRun, MovingRingRun, MultiwayRun, Run
from tests.support.controlled import SCHEMA
from thetastream.core.errors import StateError
from thetastream.core.spans import Rows
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.models import ATR, CTR, Biclique, Chain, Matrix, Ring, Split
from thetastream.runtime.control.request import Request


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
    # What has ended leaves the version of the plan that ended it, and nothing else: no tuples, no timers, no
    # files of requests and marks.
    keys = run.spark.fitted.keys
    assert run.spark.list_living() == sorted(keys[slot] for slot in run.spark.plan.newest.slots)
    ended = [json.loads(run.spark.state["value"][keys[slot]][0]) for slot in (0, 1)]
    assert [(one["state"]["segments"], one["plan"]) for one in ended] == [([], [2, 7])] * 2
    assert not any(run.spark.state["timers"][keys[slot]] for slot in (0, 1))
    assert not any(run.spark.state["parts"][keys[slot]] for slot in (0, 1))
    assert run.spark.offsets[-1]["control"]["outcomes"] == {name: ""}
    assert run.spark.control.list_requests() == []
    assert run.spark.control.list_drained() == set()
    # Without news, the offset stays the same, so Spark runs no epoch for it.
    run.spark.log_offset()
    assert run.spark.offsets[-1] == run.spark.offsets[-2]


@pytest.mark.sampled(2)
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


@pytest.mark.parametrize("crash", [None, 0, 2])
def test_units_that_answer_tuples_hand_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: int | None
) -> None:
    """New units get copies for a window, and take over. Older units end when their tuples are decided."""
    run = AntiRun(tmp_path, monkeypatch, Matrix(2, 1))
    run.run()
    run.spark.control.put_request(Request(sizes={"rows": 3}).write())
    shapes = []
    for number in range(12):
        run.run(crashes=() if crash is None or number > 4 else (crash,))
        plan = run.spark.plan
        shapes.append((plan.coming is not None, [len(one.slots) for one in plan.membership]))
    run.check()
    steps = [(True, [2]), (False, [2, 3]), (False, [3])]
    assert [step for step, after in pairwise([*shapes, None]) if step != after] == steps
    # What has ended leaves nothing: no state, no timers, no marks.
    keys = run.spark.fitted.keys
    assert run.spark.list_living() == sorted(keys[slot] for slot in run.spark.plan.newest.slots)
    assert not any(run.spark.state["timers"][keys[slot]] for slot in (0, 1))
    assert run.spark.control.list_drained() == set()


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


SENDING: dict[str, tuple[Any, Any, dict[str, int]]] = {
    "ring": (MultiwayRun, Ring(2, Rows(3)), {"nodes": 3}),
    "limited": (MultiwayRun, Ring(3, Rows(3), in_flight=40), {"nodes": 2}),
    "atr": (MultiwayRun, ATR(1, timedelta(milliseconds=4)), {"nodes": 2}),
    "ctr": (MultiwayRun, CTR(2, 2, timedelta(milliseconds=4)), {"nodes": 3}),
    "chain": (ChainRun, Chain(2, block=3), {"workers": 3}),
    "moving, two streams": (MovingRingRun, Ring(2, Rows(3), moves_tuples=True), {"nodes": 3}),
    "moving": (MultiwayRun, Ring(2, Rows(3), moves_tuples=True), {"nodes": 3}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SENDING)
def test_units_that_send_messages_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Units change while messages are in flight, epochs crash, and old units end."""
    kind, model, sizes = SENDING[name]
    run = kind(tmp_path, monkeypatch, model)
    run.run()
    run.run()
    run.spark.control.put_request(Request(sizes=sizes).write())
    shapes = []
    for number in range(14):
        run.run(n=8 if number < 8 else 0, crashes=(number % 5,) * (number < 4))
        shapes.append([len(one.slots) for one in run.spark.plan.membership])
    run.check()
    (n_units,) = sizes.values()
    assert shapes[0] == [model.n_units, n_units]
    assert shapes[-1] == [n_units]
    # What has ended keeps no tuples and no timers.
    keys = run.spark.fitted.keys
    assert run.spark.list_living() == sorted(keys[slot] for slot in run.spark.plan.newest.slots)
    assert not any(run.spark.state["timers"][keys[slot]] for slot in range(model.n_units))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("model", [Biclique((1, 1)), Split(3), Matrix(2, 2)], ids=repr)
def test_tuples_that_never_expire_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any) -> None:
    """Units that leave send their tuples, epochs crash meanwhile, and the units end."""
    run = FullHistoryRun(tmp_path, monkeypatch, Biclique((2, 1)))
    run.run()
    run.run()
    run.spark.control.put_request(Request(model=model).write())
    for number in range(12):
        run.run(n=8 if number < 8 else 0, crashes=(number % 5, (number + 2) % 5) if number < 6 else ())
    assert [one.model for one in run.spark.plan.membership] == [model]
    run.run()
    run.check()
    # What has ended keeps no tuples.
    keys = run.spark.fitted.keys
    newest = sorted(keys[slot] for slot in run.spark.plan.newest.slots)
    assert run.spark.list_living() == newest
    assert sorted(key for key, parts in run.spark.state["parts"].items() if parts) == newest


def test_a_unit_that_joins_while_none_leaves_can_leave_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent when a biclique grows, but new units learn the name of the mailbox."""
    run = FullHistoryRun(tmp_path, monkeypatch, Biclique((1, 1)))
    for units in ((2, 2), (1, 1)):
        run.run()
        run.spark.control.put_request(Request(sizes={"units": units}).write())
        run.run()
    for _ in range(8):
        run.run(n=2)
    assert run.spark.plan.slots == (0, 1)
    run.check()


def test_a_checkpoint_without_a_mailbox_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query may have run without ``max_units`` or in an earlier version. Then it has no mailbox."""
    run = FullHistoryRun(tmp_path, monkeypatch, Biclique((2, 1)))
    moving = run.spark.spec
    assert isinstance(moving, MovingSpec)
    for spec in (moving.join, moving, moving.join, moving):
        run.spark.spec = spec
        run.spark.start()
        run.run()
        assert ("mailbox" in run.spark.offsets[-1]) == (len(run.spark.offsets) > 1)
    run.spark.control.put_request(Request(sizes={"units": (1, 1)}).write())
    for _ in range(10):
        run.run(n=3)
    assert [one.model for one in run.spark.plan.membership] == [Biclique((1, 1))]
    run.check()


def test_a_run_calls_the_units_whose_marks_it_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run forgets the marks of earlier runs. No new tuple probes the last unit of the matrix any more."""
    run = FullHistoryRun(tmp_path, monkeypatch, Matrix(2, 2))
    run.run(5)
    run.spark.control.put_request(Request(model=Biclique((1, 1))).write())
    while {slot for slot, _ in run.spark.control.list_drained()} != {0, 1, 2, 3}:
        run.run(5)
    for _ in range(3):
        run.spark.start()
        run.run(5)
    run.run(5)
    assert [one.model for one in run.spark.plan.membership] == [Biclique((1, 1))]
    run.check()


@pytest.mark.parametrize("name", ["ring", "chain"])
def test_units_of_a_checkpoint_with_times_for_numbers_cannot_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It comes from foreachBatch on Spark Connect. It is refused with max_units, and goes on without it."""
    kind, model, _ = SENDING[name]
    run = kind(tmp_path, monkeypatch, model)
    spark = run.spark
    spark.is_timed, spark.began_ms = True, 1_790_000_000_000
    spark.start()
    for _ in range(4):
        run.run()
        spark.began_ms += 1000
    spark.is_timed = False
    spark.start()
    batches = run.draw(8)
    spark.log_offset()
    with pytest.raises(StateError, match=r"EPOCH_UNKNOWN.*leave max_units out"):
        spark.run(batches, run.watermark)
    spark.is_timed = True
    spark.start()
    run.end_epoch(spark.run(batches, run.watermark))
    for number in range(10):
        spark.began_ms += 1000
        run.run(n=8 if number < 4 else 0)
    run.check()
