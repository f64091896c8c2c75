"""Measures how strong units are, so that their load can be even in time and not in tuples.

    capacity(u) = tuples that u holds / time that u works       both summed over epochs

A unit compares each tuple of the other stream with what it holds, so its work grows with what it holds. The
time of a weak unit, on a slow machine or on a core that others use too, grows faster. If shares follow these
capacities, all units of a group work equally long: they hold s(u) in proportion to s(u) / t(u) only if all
t(u) are equal. What a unit holds follows its share as tuples expire, over the length of a window. The
capacity does not depend on this, because it divides by what the unit holds now.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.models import Biclique

WEAKEST = 1 / 16
"""The smallest capacity, as a part of the largest one of the group."""
SMALLEST_CHANGE = 0.01
"""Capacities that differ by no more than this part of their values are the same."""


def measure_capacities(
    model: Biclique, slots: Sequence[int], epochs: Iterable[Mapping[str, Any]], factor: float
) -> tuple[float, ...] | None:
    """Measure the capacities of all units; None if their work is even enough, or if they have these already.

    A unit with the smallest share that is possible may work longer than others for ever.

    Parameters
    ----------
    model : Biclique
        The newest model.
    slots : sequence of int
        The slots of its units.
    epochs : iterable of mapping
        The counters of epochs, as ``th.metrics`` returns them.
    factor : float
        Work is even enough if no unit works more than this many times as long as the mean of its group.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if a unit has not held tuples and worked for a millisecond.

    Examples
    --------
    >>> from thetastream.models import Biclique
    >>> units = [{"unit": 0, "held": 90, "busy_ms": 10}, {"unit": 1, "held": 90, "busy_ms": 30}]
    >>> units += [{"unit": 2, "held": 50, "busy_ms": 9}]
    >>> measure_capacities(Biclique((2, 1)), (0, 1, 2), [{"units": units}], 1.2)
    (1.5, 0.5, 1.0)
    >>> measure_capacities(Biclique((2, 1)), (0, 1, 2), [{"units": units}], 1.6) is None
    True
    """
    held, busy_ms = dict.fromkeys(slots, 0), dict.fromkeys(slots, 0)
    for epoch in epochs:
        for unit in epoch["units"]:
            if unit["unit"] in held:
                held[unit["unit"]] += unit["held"]
                busy_ms[unit["unit"]] += unit["busy_ms"]
    idle = [slot for slot in slots if not held[slot] or not busy_ms[slot]]
    if idle:
        what = f"capacities need epochs in which every unit works, and unit {idle[0]} has not worked yet"
        raise QueryError("NOTHING_MEASURED", what)
    groups = [[(held[slots[unit]], busy_ms[slots[unit]]) for unit in units] for units in model.groups]
    capacities = find_capacities(groups, factor)
    if capacities is None:
        return None
    before = model.capacities or (1.0,) * len(slots)
    found, is_same = [1.0] * len(slots), True
    for units, measured in zip(model.groups, capacities, strict=True):
        mean = sum(before[unit] for unit in units) / len(units)
        for unit, capacity in zip(units, measured, strict=True):
            found[unit] = capacity
            is_same &= abs(before[unit] / mean - capacity) <= SMALLEST_CHANGE * capacity
    return None if is_same else tuple(found)


def find_capacities(
    groups: Sequence[Sequence[tuple[float, float]]], factor: float
) -> list[list[float]] | None:
    """Find the capacities of the units of each group, whose mean is 1; None if their work is even enough.

    ``groups`` has what each unit holds and how long it works.

    >>> find_capacities([[(90, 10), (90, 30)]], 1.2)
    [[1.5, 0.5]]
    """
    times = [[busy for _, busy in units] for units in groups]
    if all(max(group) * len(group) <= factor * sum(group) for group in times):
        return None
    return [_compute_capacities(units) for units in groups]


def _compute_capacities(units: Sequence[tuple[float, float]]) -> list[float]:
    rates = [held / busy for held, busy in units]
    rates = [max(rate, max(rates) * WEAKEST) for rate in rates]
    return [round(rate * len(rates) / sum(rates), 3) for rate in rates]
