"""Sparse history, which a query reads far faster than it happened: ``python -m bench backfill``.

backfill          an event a minute of each stream; the window is 5 minutes
backfill-bursts   as many events a day, in bursts of ten seconds, and none in the eight hours of a night
backfill-short    an event a minute; the window is 30 seconds, which is shorter than the gap between events

The condition is a band without an equality, and a left tuple has about one result. ``handshake`` runs beside
them in epochs of the same size. The target is 0.7 of its throughput.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from bench.core.join_sql import Cells
from bench.core.workload import Columns, Workload

EPOCHS = (12_288, 131_072)
"""Tuples of each stream in an epoch."""
SECOND_US = 1_000_000
WINDOW = 6
"""Tuples of each stream in a window of 5 minutes, both ends included."""
DAY, BURST = 24 * 60, 10
"""Number of events of a day and of a burst."""
GAP_S = 16 * 3600 * BURST // DAY
"""Seconds from the beginning of a burst to the beginning of the next."""
VALUES = 1_000_000


def _draw(random: np.random.Generator, n: int, window: int) -> Columns:
    return {"v": pa.array(random.integers(0, VALUES, n)), "id": pa.array(random.integers(0, 1 << 40, n))}


def place_in_bursts(number: np.ndarray) -> np.ndarray:
    """Return the second of each event: all events of a day come in 16 hours, in bursts.

    >>> place_in_bursts(np.array([0, 9, 10, 1439, 1440])).tolist()
    [0, 9, 400, 57209, 86400]
    """
    day, of_day = np.divmod(number, DAY)
    burst, of_burst = np.divmod(of_day, BURST)
    found: np.ndarray = day * 24 * 3600 + burst * GAP_S + of_burst
    return found


def _make(name: str, reach: int, window_s: int, **more: Any) -> Workload:
    on = f"l.v BETWEEN r.v - {reach} AND r.v + {reach}"
    window_us = window_s * SECOND_US
    cells = (Cells("ts", "ts", window_us, 2 * window_us),)
    more |= {"window_us": window_us, "cells": lambda window: cells}
    return Workload(name, ("l", "r"), (_draw, _draw), on, on, WINDOW, EPOCHS[0], **more)


WORKLOADS = (
    _make("backfill", 50_000, 300, tick_us=60 * SECOND_US),
    _make("backfill-bursts", 50_000, 300, tick_us=SECOND_US, place=place_in_bursts),
    _make("backfill-short", 500_000, 30, tick_us=60 * SECOND_US),
)
