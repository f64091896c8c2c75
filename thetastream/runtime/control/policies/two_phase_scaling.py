"""Two-phase scaling (BiStream, SIGMOD 2015, section 5).

For each group of k units, each with capacity C:

    tau    = sum(MLV) / (k C)            the share of its capacity that the group uses
    Delta  = (tau / Psi - 1) k           units to add (positive) or to remove (negative), equation 7

The group is overloaded if tau > T_h, and underloaded if tau < T_l. The number of units changes after several
equal decisions in a row, so a short peak changes nothing. Psi, between T_l and T_h, is the share after the
change.

The paper's units move their tuples when a group changes. With windows, ours do not: a new unit gets its share
of new tuples, and a unit that leaves keeps its tuples until they expire. The sum of the MLV therefore
includes units that leave. Otherwise, tau would stay low after a removal, and more units would be removed.
"""

from dataclasses import dataclass
from datetime import timedelta
from math import ceil, trunc
from typing import ClassVar

from thetastream.core.arguments import describe_given, is_number, refuse_non_integer, refuse_non_number
from thetastream.core.errors import QueryError
from thetastream.core.spans import parse_nbytes
from thetastream.runtime.control.policies.load import GroupLoad, Load, Sizes, read_every_s


@dataclass(frozen=True)
class TwoPhaseScaling:
    """A policy that adds units when groups use too much of their capacity, and removes them later.

    The defaults are the values of BiStream's experiment.

    Parameters
    ----------
    high : float
        A group is overloaded above this share of its capacity (T_h in the paper).
    low : float
        A group is underloaded below this share of its capacity (T_l).
    target : float
        The share of its capacity that a group should use after a change (Psi), between ``low`` and ``high``.
    capacity : str, int or float
        The capacity of one unit. A size, as in ``"1.5 GB"``, or a whole number of bytes: the memory of its
        stored tuples. A number of at most 1: the share of the time for which a unit may work. It is 1 if a
        unit has a core of its own, and 0.25 if four units share one.
    every : str or timedelta
        How often the load is checked.
    agree : int
        How many checks in a row must come to the same decision.

    Raises
    ------
    QueryError
        POLICY if a value is not in its range.

    Examples
    --------
    >>> policy = TwoPhaseScaling(capacity="1 GB", every="1 minute", agree=2)
    >>> decider = policy.begin()
    >>> full = (GroupLoad(n_units=4, mlv_bytes=3.6e9),)
    >>> [decider.decide(Load(minute * 60, 60, full)) for minute in range(4)]
    [None, None, (6,), None]
    """

    name: ClassVar[str] = "two-phase-scaling"

    high: float = 0.8
    low: float = 0.3
    target: float = 0.6
    capacity: str | float = "1.5 GB"
    every: str | timedelta = "1 minute"
    agree: int = 3

    def __post_init__(self) -> None:
        for name in ("low", "target", "high"):
            refuse_non_number(getattr(self, name), name, condition="POLICY")
        if not self.low < self.target < self.high:
            what = f"{self.low}, {self.target}, {self.high}"
            raise QueryError("POLICY", f"low < target < high must hold, and they are {what}")
        if not _is_share(self.capacity) and parse_nbytes(self.capacity) is None:
            raise QueryError(
                "POLICY",
                'capacity must be a size, as in "1.5 GB" or 1500000000, or a share of the time of at most 1, '
                f"not {describe_given(self.capacity)}",
            )
        read_every_s(self.every)
        refuse_non_integer(self.agree, "agree", 1, condition="POLICY")

    @property
    def every_s(self) -> float:
        """The time between two checks, in seconds."""
        return read_every_s(self.every)

    def begin(self) -> "TwoPhaseScaler":
        """Return a decider that has seen nothing yet."""
        return TwoPhaseScaler(self)

    def compute_tau(self, group: GroupLoad, elapsed_s: float) -> float:
        """Compute tau, the share of its capacity that a group uses.

        ``elapsed_s`` is the time in which its units worked ``group.busy_s`` seconds.

        >>> TwoPhaseScaling(capacity=0.5).compute_tau(GroupLoad(n_units=2, mlv_bytes=0, busy_s=3), 10)
        0.3
        """
        if _is_share(self.capacity):
            return group.busy_s / (group.n_units * float(self.capacity) * max(elapsed_s, 1e-9))
        return group.mlv_bytes / (group.n_units * (parse_nbytes(self.capacity) or 1))

    def compute_size(self, n_units: int, tau: float) -> int:
        """Compute the number of units after a change: up is rounded up, down is truncated, at least one.

        >>> policy = TwoPhaseScaling()
        >>> policy.compute_size(4, 0.9), policy.compute_size(10, 0.25), policy.compute_size(2, 0)
        (6, 5, 1)
        """
        # A ratio such as 0.9 / 0.6 may be a little above the exact one, which must not add a unit.
        delta = round((tau / self.target - 1) * n_units, 9)
        return max(1, n_units + (ceil(delta) if delta > 0 else trunc(delta)))


class TwoPhaseScaler:
    """Two-phase scaling of the groups of one query."""

    def __init__(self, policy: TwoPhaseScaling) -> None:
        self._policy = policy
        self._counters: list[tuple[int, int]] = []
        """For each group, its last decision (+1, 0 or -1) and how many checks in a row came to it."""
        self._busy_s: list[float] = []
        self._elapsed_s = 0.0
        self._checked_s: float | None = None

    def decide(self, load: Load) -> Sizes | None:
        """Return the number of units of each group after this epoch; None if nothing changes."""
        # 1. Add up the work since the last check. The first epoch begins the time until the first check.
        if self._checked_s is None or len(self._counters) != len(load.groups):
            self._counters, self._busy_s = [(0, 0)] * len(load.groups), [0.0] * len(load.groups)
            self._elapsed_s, self._checked_s = 0.0, load.time_s
            return None
        self._busy_s = [
            busy_s + group.busy_s for busy_s, group in zip(self._busy_s, load.groups, strict=True)
        ]
        self._elapsed_s += load.epoch_s
        if load.time_s - self._checked_s < self._policy.every_s - 1e-9:
            return None
        # 2. Requesting phase: compare each group with the thresholds, and count equal decisions in a row.
        sizes = [group.n_units for group in load.groups]
        for number, group in enumerate(load.groups):
            group = group._replace(busy_s=self._busy_s[number])
            tau = self._policy.compute_tau(group, self._elapsed_s)
            decision = (tau > self._policy.high) - (tau < self._policy.low)
            last, n_equal = self._counters[number]
            n_equal = n_equal + 1 if decision == last else 1
            self._counters[number] = decision, n_equal
            # 3. Scaling phase.
            if decision and n_equal >= self._policy.agree:
                sizes[number] = self._policy.compute_size(group.n_units, tau)
                self._counters[number] = 0, 0
        self._busy_s, self._elapsed_s, self._checked_s = [0.0] * len(load.groups), 0.0, load.time_s
        return None if sizes == [group.n_units for group in load.groups] else tuple(sizes)


def _is_share(capacity: object) -> bool:
    return is_number(capacity) and 0 < capacity <= 1
