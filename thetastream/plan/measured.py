"""Statistics of a join that has run: its counters and Spark's query progress, read together.

rate = tuples / (latest - earliest event time)        bytes = MLV / tuples stored now

Event times in the progress are those of one of the streams: both move on together, or the watermark stops.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from thetastream.errors import QueryError
from thetastream.plan.statistics import Statistics

COUNTED = ("left", "right")


def measured(epochs: Sequence[Mapping[str, Any]], progress: Sequence[Mapping[str, Any]]) -> Statistics:
    """What one join's epochs say.

    Parameters
    ----------
    epochs : sequence of mapping
        Of ``th.metrics``, oldest first.
    progress : sequence of mapping
        Of ``StreamingQuery.recentProgress``, as JSON has it: the same epochs, and those without counters.

    Returns
    -------
    Statistics
        Of origin ``measured``. Bytes are left out unless Spark remembers the first epoch: tuples from
        before would not be counted.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if no epoch has brought a tuple.
    """
    n = [sum(epoch.get(name, 0) for epoch in epochs) for name in COUNTED]
    if not any(n) and any(epoch.get("stored", 0) for epoch in epochs):
        what = "statistics are measured of joins of two streams, and this one is hop by hop"
        raise QueryError("NOTHING_MEASURED", f"{what}; give th.Statistics(tuples_per_second={{...}})")
    if not any(n):
        raise QueryError(
            "NOTHING_MEASURED", "statistics need an epoch with tuples, and the query has none yet"
        )
    clock = _clock(progress)
    is_whole = progress[0]["batchId"] == 0
    return Statistics(
        tuples_per_second=(n[0] / clock.span_s, n[1] / clock.span_s),
        bytes_per_tuple=_bytes_per_tuple(epochs) if is_whole else None,
        watermark_delay_s=clock.delay_s,
        epoch_s=clock.epoch_s,
        candidates_per_tuple=sum(epoch["candidates"] for epoch in epochs) / sum(n),
        origin="measured",
    )


@dataclass
class _Clock:
    span_s: float
    delay_s: float | None = None
    epoch_s: float = 0.0


def _clock(progress: Sequence[Mapping[str, Any]]) -> _Clock:
    """How event time moved; without any, the wall clock."""
    latest: float | None = None
    earliest = float("inf")
    steps, delays = [], []
    for report in progress:
        times = report.get("eventTime") or {}
        watermark = _instant(times.get("watermark"))
        # An epoch's watermark was found by the epochs before it; at 0 there is none yet.
        if latest is not None and watermark:
            delays.append(max(0.0, latest - watermark))
        if times.get("max") is not None:
            newest = _instant(times["max"])
            earliest = min(earliest, _instant(times["min"]))
            if latest is not None:
                steps.append(max(0.0, newest - latest))
            latest = newest if latest is None else max(latest, newest)
    if latest is not None and latest > earliest:
        return _Clock(latest - earliest, median(delays) if delays else None, median(steps) if steps else 0.0)
    first, last = _instant(progress[0]["timestamp"]), _instant(progress[-1]["timestamp"])
    return _Clock(max(last - first + progress[-1].get("batchDuration", 0) / 1000, 1e-3))


def _instant(text: str | None) -> float:
    """Seconds since 1970 of an ISO instant; 0 for none.

    >>> _instant("1970-01-01T00:00:01.500Z")
    1.5
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0


@dataclass
class _Held:
    """What a unit holds by the end of its last epoch: one that got nothing reports nothing."""

    live: int = 0
    nbytes: int = 0
    stored: int = 0
    counted: list[int] = field(default_factory=lambda: [0, 0])


def _bytes_per_tuple(epochs: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """MLV per stored tuple, by side where units store one side alone, else of both together.

    Averaged over epochs: each has its own share of index edges and of periods that are half expired.
    """
    units: dict[int, _Held] = {}
    live, nbytes = [0, 0, 0], [0, 0, 0]
    for epoch in epochs:
        for report in epoch["units"]:
            unit = units.setdefault(report["unit"], _Held())
            unit.live += report["stored"] - report["expired"]
            unit.nbytes = report["mlv_bytes"]
            unit.stored += report["stored"]
            unit.counted = [n + report.get(name, 0) for n, name in zip(unit.counted, COUNTED, strict=True)]
        for unit in units.values():
            # A unit that stores every tuple it counts, all of one side, stores that side alone.
            alone = [side for side in range(2) if unit.counted[side] == unit.stored > 0]
            for part in (*alone, 2):
                live[part] += unit.live
                nbytes[part] += unit.nbytes
    if not live[2]:
        return None
    left, right = (nbytes[part] / live[part] for part in (side if live[side] else 2 for side in range(2)))
    return left, right
