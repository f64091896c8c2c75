"""Findings about a running join: each appears when it should, once, and again after it has gone."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from thetastream.runtime.observe.health import EPOCHS, SHORT_EPOCHS, Health
from thetastream.spark.observe import listener
from thetastream.spark.observe.listener import Listener

BEGIN = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def make_entry(
    second: float = 0.0,
    took_ms: int = 800,
    received: Mapping[int, int] | None = None,
    lag_s: float | None = None,
    state_bytes: int = 0,
    tuples: int = 100,
) -> dict[str, Any]:
    units = [{"unit": unit, "received": n} for unit, n in (received or {0: tuples}).items()]
    stream = {"timely": tuples, "late": 0, "lag_s": lag_s, "newest_us": None}
    return {
        "epoch": 0, "join": "j", "began": (BEGIN + timedelta(seconds=second)).isoformat(), "units": units,
        "durations_ms": {"triggerExecution": took_ms}, "state_bytes": state_bytes, "watermark": None,
        "matched": 0, "held": 0, "streams": {"a": stream},
    }  # fmt: skip


def observe(health: Health, entries: Iterator[dict[str, Any]]) -> list[str]:
    return [finding for entry in entries for finding in health.observe(entry)]


EVEN = dict.fromkeys(range(8), 100)


def test_skew() -> None:
    health = Health("q")
    skewed = {**EVEN, 3: 700}
    (finding,) = observe(health, (make_entry(2.0 * n, received=skewed) for n in range(3 * EPOCHS)))
    assert finding.startswith(
        "unit 3 of query q received 50% of the tuples of the last 20 epochs, and there are 8"
    )
    assert observe(health, (make_entry(200 + 2.0 * n, received=EVEN) for n in range(EPOCHS))) == []
    assert len(observe(health, (make_entry(400 + 2.0 * n, received=skewed) for n in range(EPOCHS)))) == 1


@pytest.mark.parametrize(
    "received",
    [EVEN, {0: 290, 1: 110, 2: 0, 3: 0}, {0: 30, 1: 0, 2: 0, 3: 0}],
    ids=["even", "less than three times", "few"],
)
def test_no_skew(received: Mapping[int, int]) -> None:
    entries = (make_entry(2.0 * n, received=received) for n in range(EPOCHS))
    assert observe(Health("q"), entries) == []


def test_a_lag_that_grows() -> None:
    health = Health("q")
    (finding,) = observe(health, (make_entry(5.0 * n, lag_s=4.0 + 2 * n) for n in range(2 * EPOCHS)))
    assert finding.startswith("stream 'a' of query q falls behind: 4 s became 42 s while 95 s passed")


@pytest.mark.parametrize(
    "lags",
    [
        [40.0] * 60,
        [100.0 - n for n in range(60)],
        [4.0 + n / 2 for n in range(60)],  # a tenth of the time that passes
        [5.0] * 59 + [60.0],  # one slow epoch
        [100_000.0 + 5 * n for n in range(60)],  # a recording
        [None] * 60,
    ],
    ids=["steady", "falling", "slow", "once", "recording", "unknown"],
)
def test_no_lag(lags: list[float | None]) -> None:
    assert observe(Health("q"), (make_entry(5.0 * n, lag_s=lag) for n, lag in enumerate(lags))) == []


def test_state_near_its_budget() -> None:
    sizes = [700, 790, 810, 900, 500, 850]
    found = [bool(Health("q", 1000).observe(make_entry(state_bytes=size))) for size in sizes]
    assert found == [False, False, True, True, False, True]
    health = Health("q", 1_000_000_000)
    sizes = [size * 1_000_000 for size in sizes]
    (first, second) = observe(health, (make_entry(state_bytes=size) for size in sizes))
    assert first.startswith("the state of query q takes 810 MB, 81% of THETASTREAM_STATE_BUDGET")
    assert "850 MB" in second
    assert observe(Health("q"), (make_entry(state_bytes=size) for size in sizes)) == []


def test_short_epochs() -> None:
    health = Health("q")
    (finding,) = observe(health, (make_entry(0.4 * n, took_ms=390) for n in range(2 * SHORT_EPOCHS)))
    assert finding.startswith("epochs of query q take 0.39 s and bring 100 tuples")
    # Epochs with pauses between them, longer ones, and few of them are fine.
    assert observe(Health("q"), (make_entry(1.0 * n, took_ms=390) for n in range(2 * SHORT_EPOCHS))) == []
    assert observe(Health("q"), (make_entry(0.6 * n, took_ms=600) for n in range(2 * SHORT_EPOCHS))) == []
    assert observe(Health("q"), (make_entry(0.4 * n, took_ms=390) for n in range(SHORT_EPOCHS - 1))) == []


def test_epochs_without_tuples_are_not_judged() -> None:
    entries = (make_entry(0.1 * n, took_ms=90, tuples=0, lag_s=5.0 * n) for n in range(2 * SHORT_EPOCHS))
    assert observe(Health("q"), entries) == []


def test_the_listener_writes_lines_and_findings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = [make_entry(2.0 * n, state_bytes=900) for n in range(3)]
    monkeypatch.setattr(listener, "list_epochs", lambda report: [entries.pop(0)])
    monkeypatch.setenv("THETASTREAM_STATE_BUDGET", "1k")
    caplog.set_level("INFO", "thetastream")
    one = Listener()
    for _ in range(3):
        one.read('{"runId": "r", "id": "i", "name": "orders"}')
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["INFO", "WARNING", "INFO", "INFO"]
    assert lines[0][1].startswith("query orders, join j, epoch 0: 0.80 s, a 100, 0 matches")
    assert "88% of THETASTREAM_STATE_BUDGET" in lines[1][1]
