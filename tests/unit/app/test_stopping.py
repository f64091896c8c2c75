"""A job that is told to stop while an epoch runs."""

import os
import signal

import pytest

from thetastream.app.job import run
from thetastream.app.job.run import _catch_signals
from thetastream.core.errors import SessionError


def lose_spark(number: signal.Signals | None) -> None:
    """Lose the connection to Spark while a job runs, behind a signal to the job if there is one."""
    with _catch_signals() as stop:
        if number is not None:
            os.kill(os.getpid(), number)
            assert stop.is_set()
        raise ConnectionError("refused")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_has_ended_spark_too_is_one_error(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "wait_for_end", lambda _: 143)
    before = signal.getsignal(number)
    with pytest.raises(SessionError, match=r"\[SPARK_ENDED\] .*The next run repeats it") as raised:
        lose_spark(number)
    assert raised.value.__suppress_context__
    assert signal.getsignal(number) == before


def test_other_errors_of_a_job_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1. Spark runs on: the error of the query has another reason than the signal.
    monkeypatch.setattr(run, "wait_for_end", lambda _: None)
    with pytest.raises(ConnectionError, match="refused"):
        lose_spark(signal.SIGTERM)
    # 2. Nobody has sent a signal, so nobody waits for the end of Spark.
    monkeypatch.delattr(run, "wait_for_end")
    with pytest.raises(ConnectionError, match="refused"):
        lose_spark(None)
