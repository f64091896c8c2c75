"""Horizons of state: which stored tuples the tuples of an epoch can no longer meet.

Under windows of event time, the horizon is one watermark for all streams: later tuples of the epoch have
later event times. Under count windows, each stream has a horizon of its own: the number of its last tuple
that arrived before the epoch.
"""

from collections.abc import Iterable
from typing import Any

from thetastream.engine.clock import find_earliest

Horizon = int | None | tuple[int, ...]
"""The horizon of an epoch: a watermark in microseconds, or the number of a tuple for each stream."""


def combine_horizons(horizons: Iterable[Horizon], n_streams: int) -> list[int | None]:
    """Return the earliest horizon of each stream.

    >>> combine_horizons([(5, 9), (7, 2)], 2), combine_horizons([30, None], 2)
    ([5, 2], [None, None])
    """
    spread = [one if isinstance(one, tuple) else (one,) * n_streams for one in horizons]
    return [find_earliest(stream) for stream in zip(*spread, strict=True)]


def read_horizon(value: Any) -> Horizon:
    """Read a horizon that was written as JSON."""
    return tuple(value) if isinstance(value, list) else value
