"""The load of the units of a controlled join, as policies see it, and the protocol of policies.

    reports of units, plan  ->  Load: for each group of the newest model, its units, MLV and work
    Load                    ->  numbers of units, one for each group, or capacities of units, or nothing

The groups are those of the newest generation, because only its size can change. Units that leave count for
the groups that store such tuples now: their tuples are load too, until they expire. A *policy* is a frozen
value that a user configures. ``begin`` makes a *decider*, which remembers what it has seen. A decider reads
no clock, because a load says when it was measured. So a policy can be tested without Spark, and the simulator
replays years of load in seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import gcd
from typing import ClassVar, NamedTuple, Protocol

from thetastream.core.sides import Side
from thetastream.core.spans import read_positive_span
from thetastream.models.base import Model
from thetastream.runtime.control.plan import ControlPlan, Generation

Sizes = tuple[int, ...]
"""The number of units of each group, in the order of ``Load.groups``."""
Capacities = Mapping[int, float]
"""How strong each unit is that stores new tuples, by its slot."""


class UnitLoad(NamedTuple):
    """What a unit reports after an epoch."""

    slot: int
    mlv_bytes: float
    """Bytes of its stored tuples and their index."""
    busy_s: float = 0.0
    """Seconds that it worked in the epoch."""


class GroupLoad(NamedTuple):
    """The load of a group: units that share the tuples of one side, or of one subgroup of a side."""

    n_units: int
    """Number of units that store new tuples."""
    mlv_bytes: float
    """Memory load volume of the group: bytes of its stored tuples and their index. Units that store no new
    tuples, and wait for their last tuples to expire, count too."""
    busy_s: float = 0.0
    """Seconds that the units of the group worked in the epoch, summed over the units."""


class StoringUnit(NamedTuple):
    """The load of a unit that stores new tuples, and its share of them."""

    slot: int
    mlv_bytes: float
    busy_s: float
    share: float
    """The part of the new tuples of its group that it stores."""


class Load(NamedTuple):
    """The load of all units after an epoch."""

    time_s: float
    """When it was measured, in seconds. Only differences count."""
    epoch_s: float
    """Seconds since the load before was measured; 0 for the first one."""
    groups: tuple[GroupLoad, ...]
    units: tuple[tuple[StoringUnit, ...], ...] = ()
    """The units of each group. Without units, their shares cannot differ."""


class Decider(Protocol):
    """A policy at work on one query."""

    def decide(self, load: Load) -> Sizes | Capacities | None:
        """Return how many units each group should have from now on, or how strong the units are; None if
        nothing changes.

        It is called once for each epoch.
        """


class Policy(Protocol):
    """A policy as the user configures it: a frozen dataclass of texts, numbers and spans of time."""

    name: ClassVar[str]
    """The name by which texts, job files and checkpoints name the policy."""

    def begin(self) -> Decider:
        """Return a decider that has seen nothing yet."""


def read_every_s(every: object) -> float:
    """Read the time between two checks of a policy, in seconds.

    >>> read_every_s("1 minute")
    60.0

    Raises
    ------
    QueryError
        POLICY if it is no positive span of time.
    """
    return read_positive_span(every, 'every must be a span, as in "1 minute"', "POLICY").total_seconds()


class LoadReader:
    """Reads the load after each epoch. Units without a report in an epoch keep their state."""

    def __init__(self) -> None:
        self._mlv_bytes: dict[int, float] = {}
        self._read_s: float | None = None

    def read(self, time_s: float, reports: Iterable[UnitLoad], plan: ControlPlan) -> Load:
        """Read the load.

        Parameters
        ----------
        time_s : float
            The time, in seconds.
        reports : iterable of UnitLoad
            What units have reported since the load before, in the order of epochs.
        plan : ControlPlan
            The newest plan.
        """
        epoch_s = 0.0 if self._read_s is None else time_s - self._read_s
        self._read_s = time_s
        busy_s: dict[int, float] = {}
        for one in reports:
            self._mlv_bytes[one.slot] = one.mlv_bytes
            busy_s[one.slot] = busy_s.get(one.slot, 0.0) + one.busy_s
        self._mlv_bytes = {slot: n for slot, n in self._mlv_bytes.items() if slot in plan.slots}
        groups = plan.newest.model.groups
        nbytes, work = [0.0] * len(groups), [0.0] * len(groups)
        for slot, members in _find_groups(plan).items():
            for number in members:
                nbytes[number] += self._mlv_bytes.get(slot, 0) / len(members)
                work[number] += busy_s.get(slot, 0.0) / len(members)
        return Load(
            time_s,
            epoch_s,
            tuple(
                GroupLoad(len(units), mlv_bytes, seconds)
                for units, mlv_bytes, seconds in zip(groups, nbytes, work, strict=True)
            ),
            tuple(self._read_units(plan.newest, busy_s)),
        )

    def _read_units(
        self, newest: Generation, busy_s: Mapping[int, float]
    ) -> Iterator[tuple[StoringUnit, ...]]:
        """Read the load of the units of each group, if their shares may differ."""
        model = newest.model
        if "capacities" not in model.sizes:
            return
        capacities = getattr(model, "capacities", None) or (1.0,) * model.n_units
        for units in model.groups:
            whole = sum(capacities[unit] for unit in units)
            slots = [(newest.slots[unit], capacities[unit] / whole) for unit in units]
            yield tuple(
                StoringUnit(slot, self._mlv_bytes.get(slot, 0.0), busy_s.get(slot, 0.0), share)
                for slot, share in slots
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
