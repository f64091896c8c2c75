"""What a person should know about a running join: findings, and warnings about late tuples and the watermark.

    skew          one unit receives more than 3 times its share, over the last 20 epochs with tuples
    lag           over the last 20 epochs, a stream fell behind by 30 s and by a fifth of the time that passed
    state         the state takes more than 80 % of its budget
    short epochs  100 epochs follow one another without a pause, and each takes less than half a second
    late tuples   most of the tuples of a stream are late
    watermark     it does not move over 20 epochs with tuples

``Health`` and ``Watch`` read the counters of each epoch, which ``thetastream.spark.observe.listener`` brings,
and they read no clock. ``Health`` reports each kind of finding once, and again when the finding has gone and
comes back. ``Watch`` warns at most once for each stream of each run.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from thetastream.runtime.observe.epoch_lines import BUDGET, LONGEST_LAG_S

EPOCHS = 20
"""The number of epochs with tuples over which skew and lag are judged."""
SKEW = 3.0
"""How many times its share a unit may receive."""
FEWEST_RECEIVED = 1000
"""The number of received tuples from which on skew is judged."""
LAG_S, LAG_SHARE = 30.0, 0.2
"""A lag grows if it grew by this many seconds, and by this share of the time that passed."""
BUDGET_SHARE = 0.8
"""The share of the budget from which on state is reported."""
SHORT_EPOCHS, SHORT_S = 100, 0.5
"""Epochs are short if so many follow one another without a pause, and take less than this many seconds."""
FEWEST_TUPLES = 50
"""The share of late tuples of a stream is judged once the stream has brought this many tuples."""
STALLED_EPOCHS = 20
"""The number of epochs with tuples, all with the same watermark, after which a warning is issued."""


class LateTuplesWarning(UserWarning):
    """Most tuples of a stream are late, so the join drops them."""


class StalledWatermarkWarning(UserWarning):
    """The watermark does not move although tuples come, so state is kept and nothing expires."""


@dataclass(frozen=True)
class _Epoch:
    """What ``Health`` remembers of an epoch."""

    began_s: float
    took_s: float
    tuples: int
    received: Mapping[int, int]
    """The tuples that each unit received."""
    lag_s: Mapping[str, float]
    """The lag of each stream that brought tuples."""
    state_bytes: int


@dataclass
class Health:
    """The findings about one join of one run of a query."""

    query: str
    budget_bytes: int | None = None
    _epochs: deque[_Epoch] = field(default_factory=lambda: deque(maxlen=SHORT_EPOCHS))
    _present: set[str] = field(default_factory=set)
    """The findings that were reported and have not gone."""

    def observe(self, entry: Mapping[str, Any]) -> list[str]:
        """Read the counters of an epoch, and return what is new.

        Parameters
        ----------
        entry : mapping
            The counters of the epoch, as ``th.metrics`` describes them.
        """
        if not self.add(entry):
            return []
        found = self.check()
        new = [text for name, text in found.items() if name not in self._present]
        self._present = set(found)
        return new

    def add(self, entry: Mapping[str, Any]) -> bool:
        """Remember the counters of an epoch. Return False for one without tuples, which says nothing."""
        epoch = _read(entry)
        if epoch is None or not epoch.tuples:
            return False
        self._epochs.append(epoch)
        return True

    def check(self) -> dict[str, str]:
        """Return all present findings, by the name of each."""
        checks = self._find_skew, self._find_lag, self._find_state, self._find_short_epochs
        return dict(finding for check in checks for finding in check()) if self._epochs else {}

    @property
    def _recent(self) -> Sequence[_Epoch]:
        return list(self._epochs)[-EPOCHS:]

    def _find_skew(self) -> Iterator[tuple[str, str]]:
        recent = self._recent
        received: dict[int, int] = {}
        for epoch in recent:
            for unit, n in epoch.received.items():
                received[unit] = received.get(unit, 0) + n
        total = sum(received.values())
        if len(recent) < EPOCHS or total < FEWEST_RECEIVED:
            return
        unit, most = max(received.items(), key=lambda item: item[1])
        if most * len(received) > SKEW * total:
            yield (
                "skew",
                f"unit {unit} of query {self.query} received {most / total:.0%} of the tuples of the last "
                f"{EPOCHS} epochs, and there are {len(received)} units, which wait for it. Many tuples have "
                'the same key: give th.Biclique fewer subgroups or routing="random", or use th.Matrix',
            )

    def _find_lag(self) -> Iterator[tuple[str, str]]:
        recent = self._recent
        for alias in sorted({alias for epoch in recent for alias in epoch.lag_s}):
            seen = [(epoch.began_s, epoch.lag_s[alias]) for epoch in recent if alias in epoch.lag_s]
            (first_s, lag_s), (last_s, now_s) = seen[0], seen[-1]
            grown_s, passed_s = now_s - lag_s, last_s - first_s
            half = len(seen) // 2
            is_steady = half > 0 and median(lag for _, lag in seen[:half]) < median(
                lag for _, lag in seen[half:]
            )
            if len(seen) >= EPOCHS and is_steady and grown_s > max(LAG_S, LAG_SHARE * passed_s):
                yield (
                    f"lag {alias}",
                    f"stream {alias!r} of query {self.query} falls behind: {lag_s:,.0f} s became "
                    f"{now_s:,.0f} s while {passed_s:,.0f} s passed. The query takes in less than the stream "
                    "brings. Give it more cores, larger epochs (maxOffsetsPerTrigger, maxFilesPerTrigger) or "
                    "a cheaper condition; th.plan(...).explain() says what the index answers",
                )

    def _find_state(self) -> Iterator[tuple[str, str]]:
        now = self._epochs[-1].state_bytes
        if self.budget_bytes and now > BUDGET_SHARE * self.budget_bytes:
            yield (
                "state",
                f"the state of query {self.query} takes {now / 1e6:,.0f} MB, {now / self.budget_bytes:.0%} "
                f"of {BUDGET}. A shorter window or delay needs less. A watermark that does not move keeps "
                "all of it; th.metrics says which stream holds it",
            )

    def _find_short_epochs(self) -> Iterator[tuple[str, str]]:
        epochs = self._epochs
        if len(epochs) < SHORT_EPOCHS:
            return
        took_s = median(epoch.took_s for epoch in epochs)
        passed_s = epochs[-1].began_s - epochs[0].began_s
        worked_s = sum(epoch.took_s for epoch in list(epochs)[:-1])
        if took_s < SHORT_S and worked_s > 0.9 * passed_s:
            tuples = median(epoch.tuples for epoch in epochs)
            yield (
                "short",
                f"epochs of query {self.query} take {took_s:.2f} s and bring {tuples:,.0f} tuples. A quarter "
                "of a second or more of each is a fixed cost, so the cores mostly commit epochs. If results "
                'may be older, give the query .trigger(processingTime="2 seconds")',
            )


def _read(entry: Mapping[str, Any]) -> _Epoch | None:
    took_ms = entry["durations_ms"].get("triggerExecution")
    if took_ms is None or entry["began"] is None:
        return None
    lags = {alias: stream.get("lag_s") for alias, stream in entry["streams"].items()}
    return _Epoch(
        began_s=datetime.fromisoformat(entry["began"]).timestamp(),
        took_s=took_ms / 1000,
        tuples=sum(stream["timely"] + stream["late"] for stream in entry["streams"].values()),
        received={unit["unit"]: unit["received"] for unit in entry["units"]},
        lag_s={alias: lag for alias, lag in lags.items() if lag is not None and 0 <= lag < LONGEST_LAG_S},
        state_bytes=entry["state_bytes"],
    )


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


def list_findings(query: str, entries: Iterable[Mapping[str, Any]]) -> list[str]:
    """List what a person should know now about a join of a query, from its last epochs in order."""
    health, watch, warned = Health(query), Watch(query), dict[str, None]()
    for entry in entries:
        health.add(entry)
        for warning in watch.observe(entry["streams"], entry["watermark"]):
            warned[str(warning)] = None
    return [*health.check().values(), *warned]


def _is_mostly_late(known: _Stream) -> bool:
    n = known.timely + known.late
    return not known.is_reported and n >= FEWEST_TUPLES and 2 * known.late > n


def _spell(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="milliseconds")
