"""A job that is told to stop while an epoch runs."""

import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from thetastream.app.job import run, stopping
from thetastream.app.job.stopping import CUT, StopRequests, catch_signals
from thetastream.core.errors import SessionError
from thetastream.spark.session import daemon


def lose_spark(number: signal.Signals | None) -> None:
    """Lose the connection to Spark while a job runs, behind a signal to the job if there is one."""
    with catch_signals(None, None) as stop:
        if number is not None:
            os.kill(os.getpid(), number)
            assert stop.n_signals == 1
        raise ConnectionError("refused")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_spark_that_ended_before_its_epoch_is_one_error(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "wait_for_end", lambda _: 143)
    before = signal.getsignal(number)
    with pytest.raises(SessionError, match=r"\[SPARK_ENDED\] .*The next run repeats it") as raised:
        lose_spark(number)
    assert raised.value.__suppress_context__
    assert signal.getsignal(number) == before


def test_other_errors_of_a_job_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1. Spark runs on: the error of the query has another reason than the signal.
    monkeypatch.setattr(stopping, "wait_for_end", lambda _: None)
    with pytest.raises(ConnectionError, match="refused"):
        lose_spark(signal.SIGTERM)
    # 2. Nobody has sent a signal, so nobody waits for the end of Spark.
    monkeypatch.delattr(stopping, "wait_for_end")
    with pytest.raises(ConnectionError, match="refused"):
        lose_spark(None)


class Query:
    """A query whose first epoch ends after some looks at it."""

    def __init__(self, looks: int) -> None:
        self._looks = looks
        self.is_stopped = False

    @property
    def isActive(self) -> bool:
        return not self.is_stopped

    @property
    def lastProgress(self) -> Any:
        self._looks -= 1
        return SimpleNamespace(batchId=0) if self._looks < 0 else None

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self._looks >= 0}

    def stop(self) -> None:
        self.is_stopped = True


def watch(monkeypatch: pytest.MonkeyPatch, signals: int, wait_s: float | None, looks: int) -> Any:
    """Watch a query with an epoch that runs; return the epochs that were reported, and the messages."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def read_epochs(query: Query, seen: int, by_arrow: tuple[str, ...]) -> list[dict[str, int]]:
        return [{"epoch": 0}] if query.lastProgress is not None and seen < 0 else []

    monkeypatch.setattr(run, "read_epochs", read_epochs)
    monkeypatch.setattr(run, "time", SimpleNamespace(sleep=sleep))
    stop = StopRequests(None, wait_s, lambda: now)
    for _ in range(signals):
        stop.add()
    query, epochs, told = Query(looks), [], []  # type: ignore[var-annotated]
    dead_letters = SimpleNamespace(count_new=dict)
    has_ended = run._watch(query, dead_letters, epochs.append, stop, told.append)  # type: ignore[arg-type]
    assert not has_ended
    assert query.is_stopped
    return epochs, told


@pytest.mark.parametrize(
    ("signals", "wait_s", "looks", "is_cut"),
    [
        (1, None, 1000, False),
        (1, 600.0, 100, False),
        (1, 2.0, 1000, True),
        (1, 0.0, 100, True),
        (2, None, 100, True),
    ],
)
def test_the_running_epoch_ends_before_the_job_if_it_may(
    monkeypatch: pytest.MonkeyPatch, signals: int, wait_s: float | None, looks: int, is_cut: bool
) -> None:
    epochs, told = watch(monkeypatch, signals, wait_s, looks)
    assert epochs == ([] if is_cut else [{"epoch": 0}])
    assert told[0] == StopRequests(None, wait_s).describe_wait()
    assert told[1:] == ([CUT] if is_cut else [])


def test_a_run_that_has_no_time_left_stops_between_epochs() -> None:
    clock = iter([0.0, 4.0, 5.0, 5.5, 7.0])
    stop = StopRequests(5.0, 2.0, lambda: next(clock))
    assert not stop.must_stop()
    stop.begin()
    assert [stop.must_stop(), stop.must_stop()] == [False, True]
    assert [stop.must_stop_now(), stop.must_stop_now()] == [False, True]


def test_workers_ignore_the_signal_that_ends_their_job() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        for number in before:
            daemon.set_handler(number, signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
