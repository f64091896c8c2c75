"""Reads the load of the units of a controlled join, as policies see it.

    counters of an epoch, plan  ->  Load: for each group of the newest model, its units, MLV and work

The groups are those of the newest generation, because only its size can change. Units that leave count for
the groups whose sides they store: their tuples are load too, until they expire.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

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
    """Find the groups of the newest model for which the unit of each slot counts, in equal parts."""
    newest = plan.newest
    groups = newest.model.groups
    sides = [set(newest.model.stores(units[0])) for units in groups]
    found: dict[int, list[int]] = {}
    for generation in plan.membership[:-1]:
        for unit, slot in enumerate(generation.slots):
            stored = set(generation.model.stores(unit))
            alike = [number for number, those in enumerate(sides) if those & stored]
            found[slot] = alike or list(range(len(groups)))
    for number, units in enumerate(groups):
        found |= {newest.slots[unit]: [number] for unit in units}
    return found
