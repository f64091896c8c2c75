"""Warnings about a running query: most of a stream is late, or the watermark does not move.

``thetastream.spark.observe.listener`` feeds a ``Watch`` with the counters of each epoch. It warns at most
once for each stream of each run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

FEWEST_TUPLES = 50
"""The share of late tuples of a stream is judged once the stream has brought this many tuples."""
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
