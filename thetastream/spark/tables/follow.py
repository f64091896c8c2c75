"""Follows tables that change: while a query reads a table, a thread of the program stages its new versions.

A table is followed from the start of any query of its session until the queries that read it have ended. As
long as no query has reported that it reads the table, any running query may be one that does.
"""

from threading import Event, Lock, Thread

from thetastream.runtime.observe.epoch_lines import LOG
from thetastream.spark.observe.listener import watch_queries
from thetastream.spark.session.failure import summarize_exception
from thetastream.spark.tables.stage import TableStaging

LOOK_S = 1.0
"""The longest pause in seconds after which a thread sees that no query runs any more."""


class TableFollower:
    """Follows one table for the queries of a session."""

    def __init__(self, staging: TableStaging, every_s: float) -> None:
        self.staging, self._every_s = staging, every_s
        self._readers: set[str] = set()
        """The runs of queries that have reported that they read the table."""
        self._is_known = False
        """Whether some run has reported it."""
        self._ended = Event()
        self._thread: Thread | None = None
        self._lock = Lock()

    def begin(self, run: str) -> None:
        """Take note that a run of a query begins."""
        if not self._is_known:
            self._start()

    def report(self, run: str, join: str) -> None:
        """Take note that a run has reported an epoch of a join."""
        if join == self.staging.flow.name:
            self._is_known = True
            self._readers.add(run)
            self._start()

    def end(self, run: str) -> None:
        """Take note that a run has ended."""
        if run in self._readers:
            self._readers.remove(run)
            if not self._readers:
                self._ended.set()

    @property
    def is_following(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        with self._lock:
            if not self.is_following:
                self._ended = Event()
                name = f"thetastream-table-{self.staging.alias}"
                self._thread = Thread(target=self._follow, args=(self._ended,), name=name, daemon=True)
                self._thread.start()

    def _follow(self, ended: Event) -> None:
        waited_s = self._every_s
        while not ended.is_set():
            if waited_s >= self._every_s:
                waited_s = 0.0
                self._refresh()
            pause_s = min(LOOK_S, self._every_s - waited_s)
            ended.wait(pause_s)
            waited_s += pause_s
            if not self._readers and not self._has_queries():
                return

    def _refresh(self) -> None:
        try:
            self.staging.refresh()
        except Exception as error:
            # The source may be out of reach, and a session that stops fails here too.
            if self._has_queries():
                found = summarize_exception(error)
                LOG.warning("table %s was not compared with its source: %s", self.staging.alias, found)

    def _has_queries(self) -> bool:
        """Whether some query of the session runs."""
        try:
            return bool(self.staging.spark.streams.active)
        except Exception:
            return False  # The session has stopped.


_LOCK = Lock()


def follow(staging: TableStaging) -> None:
    """Follow a table from now on, if ``every=`` asks for it."""
    every_s = staging.table.every_s
    if every_s is None:
        return
    with _LOCK:
        readers = watch_queries(staging.spark).readers
        if not any(isinstance(one, TableFollower) and one.staging is staging for one in readers):
            readers.append(TableFollower(staging, every_s))
