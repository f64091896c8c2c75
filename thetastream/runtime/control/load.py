"""Reads the load of the units of a controlled join, as policies see it.

    counters of an epoch, plan  ->  Load: for each group of the newest model, its units, MLV and work

The groups are those of the newest generation, because only its size can change. Units that leave count for
the groups that store such tuples now: their tuples are load too, until they expire.
"""

from collections.abc import Mapping
from datetime import datetime
from math import gcd
from typing import Any

from thetastream.core.sides import Side
from thetastream.models.base import Model
from thetastream.runtime.control.plan import ControlPlan
from thetastream.runtime.control.policies import GroupLoad, Load


class LoadReader:
    """Reads the load after each epoch. Units without a report in an epoch keep their state."""

    def __init__(self) -> None:
        self._mlv_bytes: dict[int, int] = {}
        self._ended_s: float | None = None

    def read(self, entry: Mapping[str, Any], plan: ControlPlan) -> Load:
        """Read the load after an epoch.

        Parameters
        ----------
        entry : mapping
            The counters of the epoch, as in ``th.metrics``.
        plan : ControlPlan
            The newest plan.
        """
        duration_s = entry["durations_ms"].get("triggerExecution", 0) / 1000
        ended_s = datetime.fromisoformat(entry["began"]).timestamp() + duration_s
        epoch_s = duration_s if self._ended_s is None else ended_s - self._ended_s
        self._ended_s = ended_s
        self._mlv_bytes |= {unit["unit"]: unit["mlv_bytes"] for unit in entry["units"]}
        self._mlv_bytes = {slot: n for slot, n in self._mlv_bytes.items() if slot in plan.slots}
        busy_s = {unit["unit"]: unit["busy_ms"] / 1000 for unit in entry["units"]}
        groups = plan.newest.model.groups
        nbytes, work = [0.0] * len(groups), [0.0] * len(groups)
        for slot, members in _find_groups(plan).items():
            for number in members:
                nbytes[number] += self._mlv_bytes.get(slot, 0) / len(members)
                work[number] += busy_s.get(slot, 0.0) / len(members)
        return Load(
            ended_s,
            epoch_s,
            tuple(
                GroupLoad(len(units), mlv_bytes, seconds)
                for units, mlv_bytes, seconds in zip(groups, nbytes, work, strict=True)
            ),
        )


def _find_groups(plan: ControlPlan) -> dict[int, list[int]]:
    """Find the groups of the newest model for which the unit of each slot counts, in equal parts.

    A unit that leaves counts for the groups that would store its tuples if they arrived today. A place p
    belongs to subgroup ``p % d`` of d. So subgroup i of d and subgroup j of e share places if i and j are
    equal modulo the greatest common divisor of d and e.
    """
    newest = plan.newest
    groups = _list_groups(newest.model)
    found: dict[int, list[int]] = {}
    for generation in plan.membership:
        has_same_places = generation.model.needs_places == newest.model.needs_places
        for units, (stored, i, d) in zip(
            generation.model.groups, _list_groups(generation.model), strict=True
        ):
            members = [
                number
                for number, (others, j, e) in enumerate(groups)
                if stored & others and (not has_same_places or (i - j) % gcd(d, e) == 0)
            ]
            found |= {generation.slots[unit]: members for unit in units}
    return found


def _list_groups(model: Model) -> list[tuple[set[Side], int, int]]:
    """List for each group the sides that it stores, and which of how many groups of these sides it is."""
    sides = [set(model.stores(units[0])) for units in model.groups]
    return [(each, sides[:number].count(each), sides.count(each)) for number, each in enumerate(sides)]
