"""Reads and describes the epochs of a job that runs."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

import thetastream as th
from thetastream.spark.dataflow.stages import UNITS

LONGEST_LAG_S = 86_400
"""A larger lag is not shown, because so old event times come from a recording."""


def read_epochs(query: StreamingQuery, seen: int) -> Iterator[dict[str, Any]]:
    """Read the epochs after number ``seen`` from Spark's progress and from the counters of the joins."""
    counters: dict[int, dict[str, int]] = {}
    for epoch in th.metrics(query):
        sums = counters.setdefault(epoch["epoch"], {})
        # The second units of a join receive candidates that its first units have counted as matches.
        is_second = UNITS in ((epoch["plan"] or {}).get("words") or {})
        for name in ("late", "state_bytes") if is_second else ("matched", "late", "state_bytes"):
            sums[name] = sums.get(name, 0) + epoch[name]
    for progress in query.recentProgress:
        if progress.batchId <= seen or not progress.durationMs.get("triggerExecution"):
            continue
        seen = progress.batchId
        yield {
            "epoch": progress.batchId,
            "tuples": progress.numInputRows,
            "tuples_per_s": round(progress.processedRowsPerSecond or 0),
            "seconds": progress.durationMs["triggerExecution"] / 1000,
            "watermark": (progress.eventTime or {}).get("watermark"),
            "lag_s": _measure_lag_s(progress.timestamp, (progress.eventTime or {}).get("max")),
            **counters.get(progress.batchId, {}),
        }


def _measure_lag_s(began: str, latest: str | None) -> float | None:
    """Compute how far the latest event time of an epoch was behind the clock when the epoch began."""
    if latest is None:
        return None
    behind = datetime.fromisoformat(began) - datetime.fromisoformat(latest)
    return round(max(0.0, behind.total_seconds()), 3)


def describe_epoch(epoch: dict[str, Any]) -> str:
    """Describe one epoch in one line.

    >>> figures = {"epoch": 3, "tuples": 1200, "tuples_per_s": 600, "seconds": 2.0, "watermark": None}
    >>> describe_epoch({**figures, "late": 1})
    'epoch 3: 1,200 tuples in 2.0 s (600/s), 1 late'

    Dead letters that are found after the last epoch have a line of their own.

    >>> describe_epoch({"dead_letters": 2})
    '2 dead letters'
    """
    dead = f"{epoch['dead_letters']:,} dead letters" if epoch.get("dead_letters") else ""
    if "epoch" not in epoch:
        return dead
    line = f"epoch {epoch['epoch']}: {epoch['tuples']:,} tuples in {epoch['seconds']:.1f} s"
    line += f" ({epoch['tuples_per_s']:,}/s)"
    lag = epoch.get("lag_s")
    if lag is not None and lag < LONGEST_LAG_S:
        line += f", {lag:,.1f} s behind"
    if "matched" in epoch:
        line += f", {epoch['matched']:,} matches"
    if "state_bytes" in epoch:
        line += f", state {epoch['state_bytes'] / 1e6:.1f} MB"
    if epoch.get("late"):
        line += f", {epoch['late']:,} late"
    return f"{line}, {dead}" if dead else line
