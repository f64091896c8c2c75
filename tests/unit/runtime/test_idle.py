"""Idle streams: when the rule finds a stream idle, and what the source of control rows makes of it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from thetastream.core.folder import Folder
from thetastream.engine.counters import Arrived
from thetastream.lowering.query import Stream
from thetastream.runtime.idle_reports import IdleReports, list_idle_reports
from thetastream.runtime.idle_rule import IdleRule, Report, StreamReport
from thetastream.spark.sources import idle
from thetastream.spark.sources.idle import IdleReader

SECOND = 1_000_000
ALL = ReadAllAvailable()


def other(newest_s: int, name: str = "a", delay_s: int = 1) -> StreamReport:
    return StreamReport(name, False, 1, newest_s * SECOND, delay_s * SECOND)


OWN = StreamReport("b", True, 1, 5 * SECOND, 0)


def run(idle_s: float, *steps: tuple[float, int | None, tuple[StreamReport, ...]]) -> list[int | None]:
    """Run the rule over (second, watermark, what streams brought); return what it finds after each."""
    rule = IdleRule(idle_s)
    found = []
    for now_s, watermark_us, brought in steps:
        rule.hear([Report(watermark_us, brought)] if brought else [], now_s)
        found.append(rule.find_complete_us(now_s))
    return [None if us is None else us // SECOND for us in found]


def test_a_silent_stream_follows_the_least_of_the_others():
    steps = [(0, 1, (other(10), other(30, "c", 5))), (5, 1, (other(20),)), (10, 1, (other(90, "c", 5),))]
    assert run(10, *steps) == [None, None, 19]


def test_a_stream_that_stopped_before_the_silence_does_not_count():
    steps = [(0, 1, (other(1, "c"), OWN)), (1, 1, (other(10),)), (11, 1, (other(20),))]
    assert run(10, *steps) == [None, None, 19]


def test_a_tuple_ends_the_silence():
    steps = [(0, 1, (other(10),)), (9, 1, (OWN,)), (12, 1, (other(20),)), (21, 1, ()), (22, 1, ())]
    assert run(10, *steps) == [None, None, None, None, 19]


def test_a_watermark_that_moves_is_not_held():
    steps = [(second, second, (other(10 * second),)) for second in range(0, 40, 5)]
    assert run(10, *steps) == [None] * 8


def test_an_idle_stream_stays_idle_while_the_watermark_follows():
    steps = [(0, 1, (other(10),)), (10, 1, (other(20),)), (11, 19, (other(30),)), (12, 29, (other(40),))]
    assert run(10, *steps) == [None, 19, 29, 39]


def test_a_pause_of_all_streams_makes_none_idle():
    steps = [(0, 1, (OWN,)), (3600, 1, ()), (3601, 1, (other(10),)), (3610, 1, ()), (3611, 1, ())]
    assert run(10, *steps) == [None, None, None, None, 9]


def test_no_other_stream_no_event_time():
    assert run(1, (0, None, (other(1)._replace(newest_us=None),)), (5, None, ())) == [None, None]


def report(folder: Path, unit: int, **arrived: Arrived) -> None:
    """Let a unit report streams ``a`` and ``b``, of which ``b`` may be idle."""
    marked = Stream("b", (("ts", "timestamp"),), watermark_delay_us=0, idle_mark=(str(folder), "b"))
    reports = list_idle_reports([Stream("a", (), watermark_delay_us=SECOND), marked])
    assert reports is not None
    reports.write("q", "join", unit, 1, arrived)


def test_streams_without_a_mark_have_no_reports(tmp_path: Path):
    assert list_idle_reports([Stream("a", (), watermark_delay_us=SECOND)]) is None
    report(tmp_path, 0, a=Arrived(), b=Arrived())
    assert not list(tmp_path.iterdir())  # nothing came, so nothing is reported
    assert isinstance(list_idle_reports([Stream("a", (), idle_mark=("x", "y"))]), IdleReports)


def begin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[IdleReader, dict]:
    """Start a reader, and run the first epoch of its query, whose task writes down the query ``q``."""
    monkeypatch.setattr(idle, "TaskContext", _Context)
    reader = IdleReader(Folder(str(folder), "b"), idle_s=5, delay_us=2 * SECOND)
    start = reader.initialOffset()
    end = latest(reader, start, 0, monkeypatch)
    (task,) = reader.partitions(start, end)
    assert list(reader.read(task)) == []
    return reader, end


class _Context:
    @classmethod
    def get(cls) -> "_Context":
        return cls()

    def getLocalProperty(self, name: str) -> str:
        return "q"


def latest(reader: IdleReader, start: dict, now_s: float, monkeypatch: pytest.MonkeyPatch) -> dict:
    """Ask for the latest offset at a time."""
    monkeypatch.setattr(idle.time, "monotonic", lambda: now_s)
    return reader.latestOffset(start, ALL)


def test_the_source_emits_one_row_per_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reader, start = begin(tmp_path, monkeypatch)
    report(tmp_path, 0, a=Arrived(1, 0, 10 * SECOND), b=Arrived())
    assert latest(reader, start, 1, monkeypatch) == start
    report(tmp_path, 1, a=Arrived(0, 1, 20 * SECOND), b=Arrived())
    assert latest(reader, start, 5.5, monkeypatch) == start
    end = latest(reader, start, 6, monkeypatch)
    assert end == {**start, "time_us": 21 * SECOND}  # 20 s, minus the delay of a, plus that of b
    (task,) = reader.partitions(start, end)
    (batch,) = reader.read(task)
    assert batch.to_pylist() == [{"time": datetime.fromtimestamp(21, UTC)}]
    assert reader.partitions(end, end) == []
    report(tmp_path, 0, a=Arrived(1, 0, 15 * SECOND), b=Arrived())
    assert latest(reader, end, 8, monkeypatch) == end  # the time only rises
    # An epoch that runs again reads the same row, in whatever process.
    again, _ = begin(tmp_path, monkeypatch)
    assert next(again.read(again.partitions(start, end)[0])) == batch


def test_a_new_run_knows_nothing_of_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    begin(tmp_path, monkeypatch)
    report(tmp_path, 0, a=Arrived(1, 0, 10 * SECOND), b=Arrived())
    reader, start = begin(tmp_path, monkeypatch)
    assert latest(reader, start, 100, monkeypatch) == start
    assert latest(reader, start, 200, monkeypatch) == start


def test_a_run_that_reads_what_is_available_has_no_idle_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reader = IdleReader(Folder(str(tmp_path), "b"), idle_s=5, delay_us=0)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert latest(reader, start, 100, monkeypatch) == start
