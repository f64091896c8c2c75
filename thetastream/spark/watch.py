"""Warnings about a running query: most of a stream is late, or the watermark does not move.

A listener reads the counters that units report in Spark's query progress. It is added to a session once,
when the first streaming join is built. It warns at most once for each stream of each run.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Thread
from typing import Any
from weakref import WeakSet

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from thetastream.spark.metrics import list_epochs
from thetastream.spark.running import RunningMarks

FEWEST_TUPLES = 50
"""The number of tuples of a stream from which on its share of late tuples is judged."""
STALLED_EPOCHS = 20
"""The number of epochs with tuples, all with the same watermark, after which a warning is issued."""


class LateTuplesWarning(UserWarning):
    """Most tuples of a stream are late, so the join drops them."""


class StalledWatermarkWarning(UserWarning):
    """The watermark does not move although tuples come, so state is kept and nothing expires."""


@dataclass
class _Stream:
    """The counters of one stream of one run, summed over its epochs."""

    timely: int = 0
    late: int = 0
    newest_us: int | None = None
    is_reported: bool = False


@dataclass
class Watch:
    """The watch over one join of one run of a query. It reads counters and returns warnings.

    Examples
    --------
    >>> watch = Watch("q")
    >>> streams = {"a": {"timely": 3, "late": 97, "newest_us": 5}}
    >>> [str(warning)[:48] for warning in watch.observe(streams, "1970-01-01T00:00:00.000Z")]
    ["97 of 100 tuples of stream 'a' of query q are la"]
    """

    query: str
    streams: dict[str, _Stream] = field(default_factory=dict)
    watermark: str | None = None
    stalled_epochs: int = 0

    def observe(self, streams: Mapping[str, Mapping[str, Any]], watermark: str | None) -> list[Warning]:
        """Read the counters of an epoch and return the warnings that follow from them.

        Parameters
        ----------
        streams : mapping of alias to mapping
            The counters of each stream in the epoch, as in ``th.metrics``.
        watermark : str or None
            The watermark of the epoch as Spark reports it; None if the query has none.
        """
        has_moved = False
        for alias, brought in streams.items():
            known = self.streams.setdefault(alias, _Stream())
            known.timely += brought["timely"]
            known.late += brought["late"]
            newest = brought["newest_us"]
            if newest is not None and (known.newest_us is None or newest > known.newest_us):
                known.newest_us, has_moved = newest, True
        if watermark is None:
            return []
        self.stalled_epochs = 0 if watermark != self.watermark else self.stalled_epochs + has_moved
        self.watermark = watermark
        found: list[Warning] = [
            self._warn_of_late_tuples(alias, known)
            for alias, known in self.streams.items()
            if _is_mostly_late(known)
        ]
        if self.stalled_epochs == STALLED_EPOCHS:
            found.append(self._warn_of_stall())
        return found

    def _warn_of_late_tuples(self, alias: str, known: _Stream) -> LateTuplesWarning:
        known.is_reported = True
        n = known.late + known.timely
        return LateTuplesWarning(
            f"{known.late:,} of {n:,} tuples of stream {alias!r} of query {self.query} are late: their event "
            f"times are at or before the watermark, which stands at {self.watermark}. The join drops them. "
            "Give the stream a longer delay in withWatermark, or find the stream that runs ahead"
        )

    def _warn_of_stall(self) -> StalledWatermarkWarning:
        newest = {alias: stream.newest_us for alias, stream in self.streams.items()}
        times = {alias: time for alias, time in newest.items() if time is not None}
        silent = [alias for alias in newest if alias not in times]
        holder = silent[0] if silent else min(times, key=times.__getitem__)
        what = "yet" if silent else f"after {_spell(times[holder])}"
        others = ", ".join(
            f"{alias!r} is at {_spell(time)}" for alias, time in times.items() if alias != holder
        )
        return StalledWatermarkWarning(
            f"the watermark of query {self.query} has stood at {self.watermark} for {STALLED_EPOCHS} epochs "
            f"with tuples. Stream {holder!r} holds it: it has brought no event time {what}"
            f"{f', while {others}' if others else ''}. Until the watermark moves, nothing expires and state "
            "grows"
        )


def _is_mostly_late(known: _Stream) -> bool:
    n = known.timely + known.late
    return not known.is_reported and n >= FEWEST_TUPLES and 2 * known.late > n


def _spell(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")


class _Listener(StreamingQueryListener):
    """Spark's listener, which passes the counters of each join to its ``Watch``."""

    def __init__(self) -> None:
        self._watches: dict[tuple[str, str], Watch] = {}
        self._marks = RunningMarks()

    def onQueryStarted(self, event: Any) -> None:
        self.begin(str(event.id), str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        self.read(event.progress.json)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self.forget(str(event.runId))

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
        watermark = (report.get("eventTime") or {}).get("watermark")
        for entry in list_epochs(report):
            key = str(report["runId"]), entry["join"]
            name = report.get("name") or report["id"]
            watch = self._watches.setdefault(key, Watch(str(name)))
            for warning in watch.observe(entry["streams"], watermark):
                warnings.warn(warning, stacklevel=2)

    def begin(self, query: str, run: str) -> None:
        """Mark a query as running."""
        self._marks.mark(query, run)

    def forget(self, run: str) -> None:
        """Forget a run that has ended."""
        self._marks.release(run)
        for key in [key for key in self._watches if key[0] == run]:
            del self._watches[key]


class _JsonListener:
    """Receives events from the JVM and asks only for what ``_Listener`` reads.

    Spark's own class copies every field of a report to Python before it calls a listener. That is several
    hundred calls to the JVM in every epoch; the report as JSON is one call.
    """

    def __init__(self, listener: _Listener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:
        self._listener.begin(event.id().toString(), event.runId().toString())

    def onQueryProgress(self, event: Any) -> None:
        self._listener.read(event.progress().json())

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        self._listener.forget(event.runId().toString())

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


_WATCHED: "WeakSet[SparkSession]" = WeakSet()


def watch_queries(spark: SparkSession) -> None:
    """Warn about the joins of this session's queries from now on."""
    if spark in _WATCHED:
        return
    # On Spark Connect, PySpark starts a thread that reads events until the session stops. A thread inherits
    # from the thread that starts it whether it keeps the program alive. So a daemon thread adds the listener,
    # and a program may end without stopping its session.
    adding = Thread(target=spark.streams.addListener, args=(_Listener(),), daemon=True)
    adding.start()
    adding.join()
    _WATCHED.add(spark)
