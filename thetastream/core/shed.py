"""Load shedding (ESJ, "Input adapter and load shedding"): which share of the tuples is dropped at a load.

    factor(load) = 0                                         load < threshold
                   Base + (1 - Base) c(x)                    x = (load - threshold) / (Capacity - threshold)
                   1                                         load >= Capacity

c is the curve: c(x) = x is the paper's linear model, in which D = (1 - Base) / (Capacity - threshold).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from thetastream.core.arguments import is_number
from thetastream.core.errors import QueryError
from thetastream.core.spans import parse_nbytes, read_span

CURVES: dict[str, Callable[[float], float]] = {"linear": lambda x: x, "quadratic": lambda x: x * x}
"""The curves by name: functions that grow from (0, 0) to (1, 1)."""
STATE: Final = "state"
LAG: Final = "lag"
"""What a load is: bytes of the fullest unit, or seconds that tuples wait before they are joined."""
TUPLES: Final = "tuples"
PROBES: Final = "probes"
"""What is dropped: whole tuples, or only their search for partners."""
RANDOM: Final = "random"
SEMANTIC: Final = "semantic"
"""Which tuples are dropped: any, or first those that probably have the fewest partners."""


@dataclass(frozen=True)
class Shed:
    """A load shedder: it drops tuples before the join while the load is above a threshold.

    Parameters
    ----------
    threshold : str, timedelta or int
        Below this load, nothing is dropped. For ``load="state"`` it is a size, as in ``"1 GB"``. For
        ``load="lag"`` it is a span, as in ``"10 seconds"``.
    capacity : str, timedelta or int
        From this load on, everything is dropped.
    base : float
        The share of the tuples that is dropped when the load reaches the threshold, from 0 to 1.
    curve : {"linear", "quadratic"}
        How this share grows from ``base`` at the threshold to 1 at the capacity.
    load : {"state", "lag"}
        What the load is. ``state``: the memory of the stored tuples of the fullest unit. ``lag``: how old
        tuples are when their epoch begins. It is the median over the tuples of an epoch of the time between
        the event time and the beginning of the epoch, for the stream that is the furthest behind.
    what : {"tuples", "probes"}
        ``tuples``: a dropped tuple is neither stored nor joined. ``probes``: it is stored, so that later
        tuples of the other stream find it, but it looks for no partners itself. This reduces the work and not
        the state, so it needs ``load="lag"``, and it needs ``th.Biclique``.
    kind : {"random", "semantic"}
        ``random``: any tuples are dropped. ``semantic``: the tuples that probably have the fewest partners
        are dropped first, so more results are kept. How many partners a tuple has is estimated from the
        tuples of the other stream that came lately with keys in the same cell. So it needs a join of two
        streams with an equality, or with a band of constant width.

    Raises
    ------
    QueryError
        SHED if a value is not in its range.

    Examples
    --------
    >>> shed = Shed(threshold="1 GB", capacity="2 GB", base=0.1)
    >>> [round(shed.compute_factor(load), 3) for load in (0.9e9, 1e9, 1.5e9, 2e9)]
    [0.0, 0.1, 0.55, 1.0]
    """

    threshold: str | timedelta | int
    capacity: str | timedelta | int
    base: float = 0.1
    curve: Literal["linear", "quadratic"] = "linear"
    load: Literal["state", "lag"] = STATE
    what: Literal["tuples", "probes"] = TUPLES
    kind: Literal["random", "semantic"] = RANDOM

    def __post_init__(self) -> None:
        for name, value, known in (
            ("curve", self.curve, tuple(CURVES)),
            ("load", self.load, (STATE, LAG)),
            ("what", self.what, (TUPLES, PROBES)),
            ("kind", self.kind, (RANDOM, SEMANTIC)),
        ):
            if value not in known:
                raise QueryError("SHED", f"{name} must be one of {', '.join(known)}, not {value!r}")
        if not is_number(self.base) or not 0 <= self.base <= 1:
            raise QueryError("SHED", f"base must be a share from 0 to 1, not {self.base!r}")
        limits = {"threshold": self.threshold, "capacity": self.capacity}
        for name, limit in limits.items():
            if self._read(limit) is None:
                what = 'a size, as in "1 GB"' if self.load == STATE else 'a span, as in "10 seconds"'
                raise QueryError("SHED", f"{name} must be {what}, for load={self.load!r}, not {limit!r}")
        threshold, capacity = self.limits
        if not threshold < capacity:
            raise QueryError("SHED", f"threshold ({self.threshold}) must be below capacity ({self.capacity})")
        if self.sheds_probes and self.load == STATE:
            raise QueryError(
                "SHED",
                'what="probes" stores every tuple, so it does not reduce the state; use load="lag", '
                'or what="tuples"',
            )

    @property
    def sheds_probes(self) -> bool:
        """Whether only the search for partners is dropped."""
        return self.what == PROBES

    @property
    def is_semantic(self) -> bool:
        """Whether the tuples with the fewest partners are dropped first."""
        return self.kind == SEMANTIC

    @property
    def limits(self) -> tuple[int, int]:
        """Threshold and capacity, in bytes of state or in microseconds of lag."""
        threshold, capacity = self._read(self.threshold), self._read(self.capacity)
        assert threshold is not None
        assert capacity is not None
        return threshold, capacity

    def _read(self, value: object) -> int | None:
        if self.load == STATE:
            return parse_nbytes(value)
        span = read_span(value)
        if span is None or span <= timedelta(0):
            return None
        return span // timedelta(microseconds=1)

    def compute_factor(self, load: float) -> float:
        """Compute the share of tuples to drop at a load, in bytes of state or in microseconds of lag."""
        threshold, capacity = self.limits
        if load < threshold:
            return 0.0
        if load >= capacity:
            return 1.0
        return self.base + (1 - self.base) * CURVES[self.curve]((load - threshold) / (capacity - threshold))

    def find_steady_share(self, load: float) -> float:
        """Estimate the share of tuples that is kept in a steady state, for ``load="state"``.

        Without a shedder, the load would be ``load``. With one, it settles at L = p load with p = 1 -
        factor(L). If ``base`` is so large that no such L is above the threshold, it settles at the threshold.

        >>> shed = Shed("1 GB", "2 GB", base=0)
        >>> [round(shed.find_steady_share(load), 3) for load in (0.5e9, 4e9)]
        [1.0, 0.4]
        >>> Shed("1 GB", "2 GB", base=0.9).find_steady_share(4e9)
        0.25
        """
        threshold, capacity = self.limits
        if load < threshold:
            return 1.0
        low, high = float(threshold), float(capacity)
        for _ in range(60):
            middle = (low + high) / 2
            is_above = (1 - self.compute_factor(middle)) * load > middle
            low, high = (middle, high) if is_above else (low, middle)
        return min(1.0, low / load)

    def estimate_kept(self, factor: float) -> float:
        """Estimate the share of the pairs that is kept if both tuples meet the same factor.

        With p = 1 - factor, a pair is kept with probability p^2. If only probes are dropped, it is p, because
        only the later tuple of a pair looks for it.

        >>> Shed("1 GB", "2 GB").estimate_kept(0.5)
        0.25
        >>> Shed("1 s", "9 s", load="lag", what="probes").estimate_kept(0.5)
        0.5
        """
        return (1 - factor) ** (1 if self.sheds_probes else 2)

    def describe(self) -> str:
        """Describe the shedder in one line for ``explain``."""
        load = "of state at the fullest unit" if self.load == STATE else "of lag"
        kept = "p" if self.sheds_probes else "p per tuple"
        more = ", or more, because those with the fewest partners go first" if self.is_semantic else ""
        return (
            f"{self.what} are dropped from {self.threshold} {load} on (share {self.base:g}), all from "
            f"{self.capacity} on, {self.curve} between; with p = 1 - share, combinations are kept with "
            f"{kept}{more}"
        )
