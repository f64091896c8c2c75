"""Steady state from epochs: rates, percentiles, state.

Only epochs after the warm-up count; it is longer than the window, so that every measured epoch joins
with a full window and expires as much as it stores.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Epoch:
    """One micro-batch."""

    number: int
    ms: int
    tuples: int
    results: int
    state_bytes: int | None = None
    emitted_bytes: int | None = None
    phases_ms: dict[str, int] = field(default_factory=dict)


def steady(epochs: list[Epoch], since: int, tuples_per_epoch: int | None = None) -> dict[str, Any]:
    """Figures of the epochs from ``since`` on.

    ``tuples_per_epoch`` replaces Spark's numInputRows, which counts a tuple again for every branch
    of the plan that reads it.

    >>> found = [Epoch(0, 900, 10, 1), Epoch(1, 100, 10, 2), Epoch(2, 300, 10, 4)]
    >>> figures = steady(found, since=1)
    >>> figures["tuples_per_s"], figures["results_per_s"], figures["epoch_ms_p50"]
    (50.0, 15.0, 200.0)
    >>> figures["results_by_epoch"]
    [1, 2, 4]
    """
    measured = epochs[since:]
    seconds = sum(epoch.ms for epoch in measured) / 1000
    tuples = sum(epoch.tuples if tuples_per_epoch is None else tuples_per_epoch for epoch in measured)
    results = sum(epoch.results for epoch in measured)
    times = [epoch.ms for epoch in measured]
    states = [epoch.state_bytes for epoch in measured if epoch.state_bytes is not None]
    emitted = [epoch.emitted_bytes for epoch in measured if epoch.emitted_bytes is not None]
    return {
        "tuples_per_s": tuples / seconds,
        "results_per_s": results / seconds,
        "results_per_tuple": results / tuples,
        "epoch_ms_p50": float(np.percentile(times, 50)),
        "epoch_ms_p99": float(np.percentile(times, 99)),
        "state_bytes": max(states) if states else None,
        "emitted_bytes": sum(emitted) / len(emitted) if emitted else None,
        "measured_epochs": len(measured),
        "measured_seconds": seconds,
        "results_by_epoch": [epoch.results for epoch in epochs],
        "ms_by_epoch": [epoch.ms for epoch in epochs],
        "state_bytes_by_epoch": [epoch.state_bytes for epoch in epochs],
        "phases_ms_median": _median_phases(measured),
    }


def _median_phases(epochs: list[Epoch]) -> dict[str, float]:
    names = sorted({name for epoch in epochs for name in epoch.phases_ms})
    return {name: float(np.median([epoch.phases_ms.get(name, 0) for epoch in epochs])) for name in names}
