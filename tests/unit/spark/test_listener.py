"""The listener of a session of Spark Connect, when the session stops."""

from threading import Event
from typing import Any

import pytest

from thetastream.spark.observe import listener


class Session:
    """A session of Spark Connect, and what was done with it."""

    def __init__(self, answers: bool) -> None:
        self.streams = self
        self.done: list[str] = []
        self._answers = answers

    def addListener(self, added: Any) -> None:
        self.done.append("added")

    def removeListener(self, removed: Any) -> None:
        if not self._answers:
            Event().wait()  # The server is gone.
        self.done.append("removed")

    def stop(self) -> None:
        self.done.append("stopped")


ALL = ["added", "removed", "stopped"]


@pytest.mark.parametrize(("answers", "done"), [(True, ALL), (False, ["added", "stopped"])])
def test_a_session_stops_without_its_listener(
    answers: bool, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "STOP_S", 0.2)
    session: Any = Session(answers)
    listener.watch_queries(session)
    session.stop()
    assert session.done == done
