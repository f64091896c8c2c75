"""Decides when a stream is idle, and up to which event time it may then be counted as complete.

    complete = min { latest event time - watermark delay : other streams that brought tuples meanwhile }

Spark's watermark is the smallest one of all streams of a query, so a stream that brings nothing stops it for
ever. A stream with ``idle=`` therefore has a second source, whose rows are seen by ``withWatermark`` and by
nothing else. A stream is idle when, for the time ``idle``, it brought no tuple, other streams did, and the
watermark stood still. It stays idle until it brings a tuple. While it is idle, the source follows the other
streams up to ``complete``. Only the time after a tuple of another stream counts. A pause of all streams, or
of the query, makes none of them idle. The rule reads a clock only through ``now_s``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class StreamReport(NamedTuple):
    """What one stream brought to one unit in one epoch."""

    stream: str
    """Name of the stream, the same at all units of a query."""
    is_own: bool
    """Whether this is the stream that may be idle."""
    tuples: int
    newest_us: int | None
    """Latest event time, in microseconds since 1970; None if there is none."""
    delay_us: int
    """Delay of the stream's watermark."""


class Report(NamedTuple):
    """What one unit reports after one epoch."""

    watermark_us: int | None
    brought: tuple[StreamReport, ...]


@dataclass
class _Other:
    complete_us: int
    """Latest event time minus the delay."""
    heard_s: float


class IdleRule:
    """The rule for one stream in one run of a query.

    Parameters
    ----------
    idle_s : float
        How long the stream must be silent, in seconds.

    Examples
    --------
    >>> rule = IdleRule(60)
    >>> trade = StreamReport("trades", False, 5, 9_000_000, 1_000_000)
    >>> rule.hear([Report(None, (trade,))], now_s=0)
    >>> rule.hear([Report(None, (trade._replace(newest_us=70_000_000),))], now_s=59)
    >>> rule.find_complete_us(59), rule.find_complete_us(60)
    (None, 69000000)
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._silent_since_s: float | None = None
        self._is_idle = False
        self._watermark_us: int | None = None
        self._others: dict[str, _Other] = {}

    def hear(self, reports: Iterable[Report], now_s: float) -> None:
        """Hear the reports of all units about the epochs since the last call."""
        reports = list(reports)
        brought = [one for report in reports for one in report.brought if one.tuples]
        for one in brought:
            if one.is_own or one.newest_us is None:
                continue
            complete_us = one.newest_us - one.delay_us
            known = self._others.setdefault(one.stream, _Other(complete_us, now_s))
            known.complete_us, known.heard_s = max(known.complete_us, complete_us), now_s
        watermarks = [report.watermark_us for report in reports if report.watermark_us is not None]
        newest_us = max(watermarks, default=self._watermark_us)
        has_moved, self._watermark_us = newest_us != self._watermark_us, newest_us
        if any(one.is_own for one in brought):
            # 1. A tuple of the stream ends its silence.
            self._silent_since_s, self._is_idle = None, False
        elif brought and (self._silent_since_s is None or (has_moved and not self._is_idle)):
            # 2. The silence begins. It begins anew if the watermark moves, because then the stream does not
            # hold the watermark back: its tuples may fail the filters of the query.
            self._silent_since_s = now_s

    def find_complete_us(self, now_s: float) -> int | None:
        """Return the event time up to which the stream may be counted as complete; None if it is not idle."""
        since_s = self._silent_since_s
        if since_s is None or now_s - since_s < self._idle_s:
            return None
        self._is_idle = True
        return min(
            (other.complete_us for other in self._others.values() if other.heard_s >= since_s), default=None
        )
