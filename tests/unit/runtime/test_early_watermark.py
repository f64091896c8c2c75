"""The watermark before 1970: routers report it, units keep it, and it decides tuples as Spark's does."""

from collections import Counter
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from tests.support import oracle
from tests.support.answer_cases import ANSWERING, count_answers, models, read
from tests.support.answers import Answer, answers
from tests.support.draws import draw_cases
from tests.support.local_run import LocalRun
from tests.support.strategies import Case, cases, stretch
from tests.unit.engine.test_answers import make_run
from tests.unit.engine.test_shedding import UNIT, make_batch
from thetastream.core.columns import UNIT as UNIT_KEY
from thetastream.core.condition import TIME, Bound, Condition, Dimension, Domain, Key, SideSpec
from thetastream.core.how import HOWS
from thetastream.core.sides import Side
from thetastream.engine.answers.spec import AnswersSpec
from thetastream.engine.clock import EarlyWatermark, Latest, merge_latest
from thetastream.engine.inbox import Inbox
from thetastream.engine.two_stream.query import UnitSpec, UnitState
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.index import IndexSpec, Scan
from thetastream.models import Biclique, Split
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.epoch import Coordination
from thetastream.runtime.inbox_rows import COLUMNS, take_in
from thetastream.runtime.routing_step import make_routing_step
from thetastream.runtime.state.manifest import LastEpoch, Manifest, decode
from thetastream.runtime.task_facts import TaskFacts
from thetastream.spark.event_time import count_watermarks


def test_every_unit_hears_of_the_latest_time_of_every_router() -> None:
    columns = tuple(str(side.time.column) for side in UNIT.condition.sides if side.time is not None)
    early = EarlyWatermark(columns, (0, 0))
    step = make_routing_step(
        FittedSpec(TwoStreamSpec(UNIT, Biclique(2))),
        1,
        is_streaming=True,
        coordination=Coordination(early=early),
        read_task=TaskFacts,
    )
    to_rows = cloudpickle.loads(cloudpickle.dumps(step))
    rows: dict[int, list[list[object]]] = {}
    for batches in ([(-9, -7), (-8, -6)], [(-3, -5)]):
        made = [make_batch(np.arange(2), np.array(times)) for times in batches]
        for batch in to_rows(iter(made)):
            for row in batch.to_pylist():
                rows.setdefault(row[UNIT_KEY], []).append([row[name] for name in COLUMNS])
    assert len(rows) == 4
    assert [take_in(Inbox(), each).latest_us for each in rows.values()] == [{1: -3}] * 4


def test_the_latest_times_survive_a_restart() -> None:
    for heard in (LastEpoch(4, None, (-5, None)), LastEpoch(4, 17)):
        manifest = Manifest(heard, None, UnitState())
        assert decode(manifest.encode({}), {}, UnitState) == manifest
    # A checkpoint from before has no latest times.
    assert '"heard": [4, 17]' in Manifest(LastEpoch(4, 17), None, UnitState()).encode({})


@pytest.mark.parametrize(
    ("latest", "takes_highest", "expected"),
    [
        ((-10_000, -20_000), False, -25_000),
        ((-10_000, -20_000), True, -10_000),
        ((-10_000, None), False, None),
        ((-10_000, None), True, -10_000),
        ((None, None), True, None),
        ((-10_000, 99_000), False, -10_000),
        ((-10_000, 99_000), True, -1_000),
        ((5_000, 4_000), False, -1_000),
        ((0, 5_000), False, -1_000),  # Spark's watermark of 0 means that there is none.
        ((1_000, 6_000), False, -1_000),
        ((-1, 5_000), False, -1_000),  # in whole milliseconds
    ],
)
def test_the_watermark_follows_the_policy(latest: Latest, takes_highest: bool, expected: int | None) -> None:
    assert EarlyWatermark(("t", "t"), (0, 5_000), takes_highest).compute(latest) == expected


@draw_cases(30)
@given(data=st.data(), case=cases(), name=st.sampled_from([*ANSWERING]))
def test_answers_before_1970_are_those_of_the_nested_loop(data: st.DataObject, case: Case, name: str) -> None:
    """All rows come in some epochs, and a last epoch shows what has been decided until then."""
    if case.condition.window is None:
        return
    how = HOWS[name]
    case = stretch(case, "before 1970", 1000)
    early = EarlyWatermark(("t", "t"), (data.draw(st.integers(0, 5)) * 1000, 2000))
    run = make_run(case, how, data.draw(models(how, case.condition)))
    latest: Latest = ()
    late_us: int | None = None
    found, kept = Counter[tuple[object, object]](), ([], [])  # type: ignore[var-annotated]
    base = -(10**17)
    last = [{**row, "t": base + 10**7, "id": 10_000 + row["id"]} for row in _rows(case)]
    for left, right, _ in [*case.epochs, (last[:1], last[1:2], None)]:
        batches = [case.batch(side, rows) for side, rows in zip(Side, (left, right), strict=True)]
        now = [
            early.find_latest(n, pa.record_batch({"t": batch.column("t")}), None)
            for n, batch in enumerate(batches)
        ]
        latest = merge_latest(latest, now)
        for mine, rows in zip(kept, (left, right), strict=True):
            mine.extend(oracle.timely(rows, late_us, "t"))
        late_us = early.compute(latest)
        found += count_answers(case, how, run.epoch(batches, late_us))

    def matches(a: oracle.Row, b: oracle.Row) -> bool:
        return oracle.holds(case.condition, a, b)

    wanted = answers(name, matches, *kept)
    undecided = {
        (row["id"], None) if side is Side.LEFT else (None, row["id"])
        for side, rows in zip(Side, kept, strict=True)
        for row in rows
        if late_us is None or row["t"] + _wait(case, side) > late_us
    }
    assert found == Counter({row: n for row, n in wanted.items() if row not in undecided or name == "semi"})


CROSSING = [
    ([(1, -100), (2, -50)], [(11, -50)]),  # The watermark is -50 s, so tuple 1 has no partner.
    ([(3, 100)], [(12, 100)]),  # Spark's watermark passes 1970 behind this epoch.
    ([(4, -100)], [(13, -100)]),  # These tuples are late.
    ([(5, 300)], [(14, 300)]),
    ([], []),
]
"""Epochs of two streams whose event times pass 1970: id and event time in seconds."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("left", [(1, None), (2, 11), (3, 12), (5, 14)]),
        ("full", [(1, None), (2, 11), (3, 12), (5, 14)]),
        ("anti", [(1, None)]),
    ],
)
def test_no_tuple_is_answered_twice_when_times_pass_1970(name: str, expected: list[Answer]) -> None:
    """Spark's watermark begins one epoch after times pass 1970. Until then, the early one must not fall."""
    side = SideSpec("a", ("id", "t"), keys=(), time=Key("t", Domain.INT))
    window = Dimension(Side.LEFT, TIME, Bound(TIME, -10_000_000), Bound(TIME, 10_000_000))
    condition = Condition((side, replace(side, alias="b")), window=window)
    unit = UnitSpec(condition, (IndexSpec(Scan()),) * 2, 100_000_000)
    run = LocalRun(AnswersSpec(TwoStreamSpec(unit, Split(1)), HOWS[name]))
    early = EarlyWatermark(("t", "t"), (0, 0))
    latest: Latest = ()
    spark_us: int | None = None
    found: list[Answer] = []
    for rows in CROSSING:
        batches = [
            pa.record_batch({"id": [row[0] for row in mine], "t": [row[1] * 1_000_000 for row in mine]})
            if mine
            else None
            for mine in rows
        ]
        now = [batch and early.find_latest(n, batch, None) for n, batch in enumerate(batches)]
        latest = merge_latest(latest, now)
        for columns in run.epoch(batches, early.compute(latest) if spark_us is None else spark_us):
            found += read(HOWS[name], columns, (2, 2))
        known = [time for time in latest if time is not None]
        spark_us = min(known) if len(known) == 2 and min(known) > 0 else None
    assert sorted(found, key=str) == expected


def _rows(case: Case) -> list[oracle.Row]:
    rows = [row for left, right, _ in case.epochs for row in (*left, *right)]
    return [*rows, *rows] if len(rows) == 1 else rows


def _wait(case: Case, side: Side) -> int:
    window = case.condition.window
    assert window is not None
    assert window.low is not None
    assert window.high is not None
    return int(-window.low.delta if side is Side.LEFT else window.high.delta)


def test_only_the_own_prints_of_a_thread_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def explain(extended: bool) -> None:
        assert extended
        other = Thread(target=print, args=("from another thread",))
        other.start()
        other.join()
        node = "EventTimeWatermark ts#1, 2 seconds"
        print(f"== Analyzed Logical Plan ==\n{node}\n+- {node}\n== Optimized Logical Plan ==\n{node}")

    frame = SimpleNamespace(explain=explain)
    assert count_watermarks(frame) == 2  # type: ignore[arg-type]
    assert capsys.readouterr().out == "from another thread\n"
