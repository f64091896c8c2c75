"""The protocol of policies: pure functions from the load of units to the numbers of units.

    load of an epoch  ->  numbers of units, one for each group, or nothing

A *policy* is a frozen value that a user configures. ``begin`` makes a *decider*, which remembers what it has
seen. A decider reads no clock, because a load says when it was measured. So a policy can be tested without
Spark, and the simulator replays years of load in seconds.
"""

from typing import NamedTuple, Protocol


class GroupLoad(NamedTuple):
    """The load of a group: units that share the tuples of one side, or of one subgroup of a side."""

    n_units: int
    """Number of units that store new tuples."""
    mlv_bytes: float
    """Memory load volume of the group: bytes of its stored tuples and their index. Units that store no new
    tuples, and wait for their last tuples to expire, count too."""
    busy_s: float = 0.0
    """Seconds that the units of the group worked in the epoch, summed over the units."""


class Load(NamedTuple):
    """The load of all units after an epoch."""

    time_s: float
    """When the epoch ended, in seconds. Only differences count."""
    epoch_s: float
    """Seconds since the epoch before ended."""
    groups: tuple[GroupLoad, ...]


Sizes = tuple[int, ...]
"""The number of units of each group, in the order of ``Load.groups``."""


class Decider(Protocol):
    """A policy at work on one query."""

    def decide(self, load: Load) -> Sizes | None:
        """Return the number of units that each group should have from now on; None if nothing changes.

        It is called once for each epoch.
        """


class Policy(Protocol):
    """A policy as the user configures it."""

    def begin(self) -> Decider:
        """Return a decider that has seen nothing yet."""
