"""Balances the load of units that are not equally strong.

    capacity(u) = MLV(u) / time that u works      both summed over the epochs between two checks

A biclique gives each unit of a group a share of new tuples in proportion to its capacity. The module
``thetastream.runtime.control.balance`` says why all units then work equally long.

Nothing is asked for if they do already, and if the shares in use are near those that were measured: what
units hold follows their shares over the length of a window, and until then they do not work equally long.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from thetastream.core.arguments import refuse_non_number
from thetastream.runtime.control.balance import find_capacities
from thetastream.runtime.control.policies.load import Capacities, Load, read_every_s


@dataclass(frozen=True)
class LoadBalancing:
    """A policy that gives weak units of a biclique fewer tuples, so that all units work equally long.

    Parameters
    ----------
    factor : float
        Nothing changes if no unit works more than so many times as long as the mean of the units of its
        subgroup, or if no share would change by more than this factor.
    every : str or timedelta
        The time between two checks, over which the work of units is summed.

    Raises
    ------
    QueryError
        POLICY if a value is not in its range.

    Examples
    --------
    >>> from thetastream.runtime.control.policies.load import StoringUnit
    >>> decider = LoadBalancing(every="1 minute").begin()
    >>> units = (StoringUnit(slot=0, mlv_bytes=9e6, busy_s=1, share=0.5),)
    >>> units += (StoringUnit(slot=1, mlv_bytes=9e6, busy_s=3, share=0.5),)
    >>> [decider.decide(Load(minute * 60, 60, (), (units,))) for minute in range(2)]
    [None, {0: 1.5, 1: 0.5}]
    """

    name: ClassVar[str] = "load-balancing"
    needs: ClassVar[str] = "capacities"
    """What a model must be able to change while the query runs."""

    factor: float = 1.2
    every: str | timedelta = "1 minute"

    def __post_init__(self) -> None:
        refuse_non_number(self.factor, "factor", 1, condition="POLICY", is_above=True)
        read_every_s(self.every)

    def begin(self) -> "LoadBalancer":
        """Return a decider that has seen nothing yet."""
        return LoadBalancer(self.factor, read_every_s(self.every))


class LoadBalancer:
    """Load balancing of the units of one query."""

    def __init__(self, factor: float, every_s: float) -> None:
        self._factor, self._every_s = factor, every_s
        self._summed: dict[int, tuple[float, float]] = {}
        """What each unit has held, and how long it has worked, summed over epochs."""
        self._checked_s = 0.0

    def decide(self, load: Load) -> Capacities | None:
        """Return how strong units are; None if nothing changes."""
        units = [unit for group in load.units for unit in group]
        if self._summed.keys() != {unit.slot for unit in units}:
            self._begin(load)  # The first epoch of these units begins the time until the first check.
            return None
        for unit in units:
            held, busy_s = self._summed[unit.slot]
            self._summed[unit.slot] = held + unit.mlv_bytes, busy_s + unit.busy_s
        if load.time_s - self._checked_s < self._every_s - 1e-9:
            return None
        summed = self._summed
        self._begin(load)
        groups = [[summed[unit.slot] for unit in group] for group in load.units]
        if any(not held or not busy_s for held, busy_s in summed.values()):
            return None
        capacities = find_capacities(groups, self._factor)
        if capacities is None:
            return None
        found = dict[int, float]()
        is_near = True
        for group, measured in zip(load.units, capacities, strict=True):
            for unit, capacity in zip(group, measured, strict=True):
                found[unit.slot] = capacity
                change = capacity / len(group) / unit.share
                is_near = is_near and 1 / self._factor <= change <= self._factor
        return None if is_near else found

    def _begin(self, load: Load) -> None:
        self._summed = {unit.slot: (0.0, 0.0) for group in load.units for unit in group}
        self._checked_s = load.time_s
