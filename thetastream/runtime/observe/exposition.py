"""Metrics of joins, and their samples in the text format of Prometheus, version 0.0.4.

``Exposition`` takes the counters of epochs and has the samples. Counters add up over the epochs that it
has seen; gauges have the value of the last epoch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER, GAUGE = "counter", "gauge"
Labels = tuple[tuple[str, str], ...]
Entry = Mapping[str, Any]
Samples = Iterator[tuple[dict[str, str], float | None]]
Read = Callable[[Entry], Samples]
PREFIX = "thetastream"
"""Beginning of the names of observed metrics."""


@dataclass(frozen=True)
class Metric:
    """One metric: its name, its kind, what it means, and how it is read from the counters of an epoch."""

    name: str
    kind: str
    meaning: str
    read: Read


RUNNING = Metric(
    f"{PREFIX}_query_running", GAUGE, "1 while the query runs, 0 when it has ended", lambda _: iter(())
)

FAILED = Metric(
    f"{PREFIX}_query_failed",
    GAUGE,
    "1 when the query has ended with an error, 0 otherwise",
    lambda _: iter(()),
)


def _whole(key: str) -> Read:
    """Read one counter of the whole join; there is no sample if the join has no such counter."""

    def read(entry: Entry) -> Samples:
        if entry.get(key) is not None:
            yield {}, float(entry[key])

    return read


def _by_stream(key: str, scale: float = 1.0) -> Read:
    def read(entry: Entry) -> Samples:
        for alias, stream in entry["streams"].items():
            value = stream.get(key)
            yield {"stream": alias}, None if value is None else value * scale

    return read


def _by_table(key: str) -> Read:
    def read(entry: Entry) -> Samples:
        for alias, table in entry.get("tables", {}).items():
            yield {"table": alias}, float(table[key])

    return read


def _refused(entry: Entry) -> Samples:
    for alias, table in entry.get("tables", {}).items():
        yield {"table": alias}, float(table["refused"] is not None)


def _by_phase(entry: Entry) -> Samples:
    for phase, millis in entry["durations_ms"].items():
        yield {"phase": phase}, millis / 1000


def _backlog(entry: Entry) -> Samples:
    for what, n in entry["backlog"].items():
        yield {"what": what}, float(n)


def _imbalance(entry: Entry) -> Samples:
    received = [unit["received"] for unit in entry["units"]]
    if sum(received):
        yield {}, max(received) * len(received) / sum(received)


def _watermark(entry: Entry) -> Samples:
    if entry["watermark"] is not None:
        yield {}, datetime.fromisoformat(entry["watermark"]).timestamp()


def _one(_: Entry) -> Samples:
    yield {}, 1.0


COUNTERS: Mapping[str, tuple[str, Read]] = {
    "epochs": ("epochs", _one),
    "tuples": ("tuples that were not late, by stream", _by_stream("timely")),
    "late_tuples": ("late tuples, which were dropped, by stream", _by_stream("late")),
    "shed_tuples": ("tuples that a shedder dropped, by stream", _by_stream("shed")),
    "received_tuples": ("tuples that units received, copies included", _whole("received")),
    "received_bytes": ("bytes of the blocks that units received", _whole("received_bytes")),
    "candidates": ("stored tuples that an index offered and a unit looked at", _whole("candidates")),
    "matches": (
        "combinations that satisfied everything that units check; pairs found, not results, if not inner",
        _whole("matched"),
    ),
    "emitted_bytes": ("bytes of the rows that left the units", _whole("emitted_bytes")),
    "forwarded_bytes": ("bytes of messages between units", _whole("forwarded_bytes")),
    "expired_tuples": ("tuples that were evicted", _whole("expired")),
}


def _units(entry: Entry) -> Samples:
    yield {}, float(len(entry["units"]))


GAUGES: Mapping[str, tuple[str, Read]] = {
    "epoch": ("the number of the last epoch", _whole("epoch")),
    "epoch_seconds": ("how long the last epoch took, by Spark's phase (triggerExecution: all)", _by_phase),
    "lag_seconds": ("how far the latest event time was behind the clock, by stream", _by_stream("lag_s")),
    "event_time_seconds": ("the latest event time, since 1970, by stream", _by_stream("newest_us", 1e-6)),
    "watermark_seconds": ("Spark's watermark, since 1970", _watermark),
    "backlog": ("offsets, files or bytes that sources had not read yet, by what they count", _backlog),
    "held_tuples": ("stored tuples, copies included", _whole("held")),
    "state_bytes": ("bytes of the stored tuples in the durable store", _whole("state_bytes")),
    "memory_load_bytes": ("bytes of the stored tuples and their index in memory", _whole("mlv_bytes")),
    "segments": ("live segments", _whole("segments")),
    "waiting_tuples": ("tuples of a multiway join that find no room in flight", _whole("waiting")),
    "undecided_tuples": ("tuples of an outer or anti join that have no partner so far", _whole("undecided")),
    "table_version": ("the version that the last epoch read, by table", _by_table("version")),
    "table_rows": ("rows of this version, by table", _by_table("rows")),
    "table_age_seconds": (
        "the time since the version was last that of its source, by table",
        _by_table("age_s"),
    ),
    "table_refused": ("1 if a later version was refused, 0 otherwise, by table", _refused),
    "units": ("units that took part in the last epoch", _units),
    "imbalance": ("what the busiest unit received, divided by the mean of all; 1 is even", _imbalance),
}
METRICS = (
    *(Metric(f"{PREFIX}_{name}_total", COUNTER, *what) for name, what in COUNTERS.items()),
    *(Metric(f"{PREFIX}_{name}", GAUGE, *what) for name, what in GAUGES.items()),
)
ALL = (*METRICS, RUNNING, FAILED)


class Exposition:
    """The samples of all joins that were added. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._samples: dict[str, dict[Labels, float]] = {metric.name: {} for metric in ALL}
        self._lock = Lock()

    def add(self, query: str, entry: Entry) -> None:
        """Add the counters of one epoch of one join."""
        with self._lock:
            for metric in METRICS:
                samples = self._samples[metric.name]
                for labels, value in metric.read(entry):
                    key = (("query", query), ("join", str(entry["join"])), *labels.items())
                    if value is not None:
                        samples[key] = value + (samples.get(key, 0.0) if metric.kind == COUNTER else 0.0)
            self._mark(query, is_running=True, is_failed=False)

    def end(self, query: str, is_failed: bool = False) -> None:
        """Mark a query as ended, and forget the gauges of its joins."""
        with self._lock:
            for metric in METRICS:
                if metric.kind == GAUGE:
                    samples = self._samples[metric.name]
                    for key in [key for key in samples if key[0] == ("query", query)]:
                        del samples[key]
            self._mark(query, is_running=False, is_failed=is_failed)

    def _mark(self, query: str, is_running: bool, is_failed: bool) -> None:
        for metric, claim in ((RUNNING, is_running), (FAILED, is_failed)):
            self._samples[metric.name][(("query", query),)] = float(claim)

    def read(self, metric: Metric) -> list[tuple[Labels, float]]:
        """Return the samples of one metric."""
        with self._lock:
            return list(self._samples[metric.name].items())

    def write(self) -> str:
        """Write all samples."""
        lines = []
        with self._lock:
            for metric in ALL:
                samples = self._samples[metric.name]
                if samples:
                    lines.append(f"# HELP {metric.name} {metric.meaning}")
                    lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines += [
                    f"{metric.name}{{{_write(labels)}}} {value:.15g}" for labels, value in samples.items()
                ]
        return "".join(f"{line}\n" for line in lines)


def _write(labels: Labels) -> str:
    r"""Write labels.

    >>> _write((("query", 'the "q"'), ("join", "ab\n")))
    'query="the \\"q\\"",join="ab\\n"'
    """
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{value.translate(escapes)}"' for name, value in labels)
