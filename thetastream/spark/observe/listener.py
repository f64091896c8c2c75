"""Reads Spark's reports about the queries of a session: warnings, log lines, marks, and exported metrics.

A listener reads the counters that units report in Spark's query progress. It is added to a session once,
when the first streaming join is built.
"""

import json
import warnings
from collections.abc import Mapping
from threading import Lock, Thread
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from thetastream.runtime.observe.epoch_lines import LOG, describe_epoch, read_budget
from thetastream.runtime.observe.health import Health, Watch
from thetastream.runtime.observe.running import RunningMarks
from thetastream.spark.observe.metrics import list_epochs
from thetastream.spark.pipelines import is_pipeline, pass_over_metrics
from thetastream.spark.session.failure import summarize_failure

_LISTENERS: "WeakKeyDictionary[SparkSession, Listener]" = WeakKeyDictionary()
_ENDS = "StreamingQueryListenerBus Handler thread .*cannot schedule new futures after"
"""What the thread of PySpark says when the program of a session of Spark Connect ends."""
_NOT_REMOVED = "Failed to remove the listener because of exception"
"""What PySpark says if the server of a session is gone when the listener is removed."""
STOP_S = 10.0
"""How long the end of a session of Spark Connect waits for its listener, in seconds."""
_LOCK = Lock()
"""Two threads that plan the first joins of a session add one listener, and not two."""


class Export(Protocol):
    """An export that gets the counters of epochs."""

    def add(self, query: str, entry: Mapping[str, Any]) -> None:
        """Take the counters of one epoch of one join, as ``th.metrics`` describes them."""

    def end(self, query: str, error: str | None) -> None:
        """Take note that a query has ended; ``error`` is the line that says why, None if it was stopped."""


class Reader(Protocol):
    """An object that follows which runs of queries take part in a join."""

    def begin(self, run: str) -> None:
        """Take note that a run of a query begins."""

    def report(self, run: str, join: str) -> None:
        """Take note that a run has reported an epoch of a join."""

    def end(self, run: str) -> None:
        """Take note that a run has ended."""


class Listener(StreamingQueryListener):
    """Spark's listener, which passes the counters of each join to all who watch it."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], Watch] = {}
        self._health: dict[tuple[str, str], Health] = {}
        self._names: dict[str, str] = {}
        """The name of the query of each run that has reported an epoch of a join."""
        self._unreported: dict[str, str] = {}
        """The name of the query of each run that has reported no epoch yet."""
        self.exports: list[Export] = []
        self.readers: list[Reader] = []
        self._marks = RunningMarks()

    def onQueryStarted(self, event: Any) -> None:
        self.begin(str(event.id), str(event.runId), event.name)

    def onQueryProgress(self, event: Any) -> None:
        self.read(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.forget(str(event.runId), event.exception)

    @property
    def _jlistener(self) -> Any:
        """The listener as a Classic session adds it; Spark Connect does not ask for it."""
        if not hasattr(self, "_jlistenerobj"):
            self._jlistenerobj = SparkContext._jvm.PythonStreamingQueryListenerWrapper(  # type: ignore[union-attr]
                _JsonListener(self)
            )
        return self._jlistenerobj

    def read(self, progress: str) -> None:
        """Read one report of Spark about one epoch of one query, as JSON."""
        report = json.loads(progress)
        run = str(report["runId"])
        if report.get("numInputRows"):
            self._unreported.pop(run, None)
        watermark = (report.get("eventTime") or {}).get("watermark")
        for entry in list_epochs(report):
            for reader in self.readers:
                reader.report(run, entry["join"])
            key = run, entry["join"]
            name = self._names.setdefault(run, str(report.get("name") or report["id"]))
            LOG.info("%s", describe_epoch(name, entry))
            watch = self._watches.setdefault(key, Watch(name))
            for warning in watch.observe(entry["streams"], watermark):
                warnings.warn(warning, stacklevel=2)
            health = self._health.setdefault(key, Health(name, read_budget()))
            for finding in health.observe(entry):
                LOG.warning("%s", finding)
            for export in self.exports:
                export.add(name, entry)

    def begin(self, query: str, run: str, name: str | None = None) -> None:
        """Mark a query as running. ``name`` is the name that the user gave it."""
        self._marks.mark(query, run)
        self._unreported[run] = name or query
        for reader in self.readers:
            reader.begin(run)

    def forget(self, run: str, exception: str | None) -> None:
        """Forget a run that has ended, by itself or by an exception with this text.

        A run that fails before its first report may be one of a join, so its failure is passed on too.
        """
        self._marks.release(run)
        for reader in self.readers:
            reader.end(run)
        unreported = self._unreported.pop(run, None)
        name = self._names.pop(run, None if exception is None else unreported)
        for export in self.exports:
            if name is not None:
                export.end(name, None if exception is None else summarize_failure(exception))
        for key in [key for key in self._watches if key[0] == run]:
            del self._watches[key], self._health[key]


class _JsonListener:
    """Receives events from the JVM and asks only for what ``Listener`` reads.

    Spark's own class copies every field of a report to Python before it calls a listener. That is several
    hundred calls to the JVM in every epoch; the report as JSON is one call.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:
        self._listener.begin(event.id().toString(), event.runId().toString(), event.name())

    def onQueryProgress(self, event: Any) -> None:
        self._listener.read(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        exception = event.exception()
        text = exception.get() if exception.isDefined() else None
        self._listener.forget(event.runId().toString(), text)

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def watch_queries(spark: SparkSession) -> Listener:
    """Watch the joins of this session's queries from now on; return the listener of the session."""
    with _LOCK:
        known = _LISTENERS.get(spark)
        if known is None:
            known = _LISTENERS[spark] = _add_listener(spark)
        return known


def _add_listener(spark: SparkSession) -> Listener:
    # On Spark Connect, PySpark starts a thread that reads events until the session stops. A thread is a
    # daemon if the thread that starts it is one, and only daemon threads let a program end. So a daemon
    # thread adds the listener, and a program may end without stopping its session.
    listener = Listener()
    if is_pipeline():
        pass_over_metrics(spark)
        return listener  # The session ends with the pipeline, and nobody can ask for its metrics.
    adding = Thread(target=spark.streams.addListener, args=(listener,), daemon=True)
    adding.start()
    adding.join()
    # The thread warns if a program ends without stopping its session. Nothing is lost then.
    warnings.filterwarnings("ignore", message=_ENDS)
    if not hasattr(spark, "_jsparkSession"):
        _remove_before_stop(spark, listener)
    return listener


def _remove_before_stop(spark: SparkSession, listener: Listener) -> None:
    """Remove the listener of a session of Spark Connect when the session stops, before it is closed.

    Otherwise the thread of the listener asks a session that is closed, and the server logs each question with
    its stack.
    """
    stop = spark.stop
    warnings.filterwarnings("ignore", message=_NOT_REMOVED)

    def stop_without_listener() -> None:
        removing = Thread(target=spark.streams.removeListener, args=(listener,), daemon=True)
        removing.start()
        removing.join(STOP_S)  # A server that is gone may not answer.
        stop()

    spark.stop = stop_without_listener  # type: ignore[method-assign]
