"""Replays a load curve over a biclique whose units a policy adds and removes.

    MLV of a unit = its share of the unexpired tuples that arrived while it stored tuples of its side

As in a running query, a change moves nothing: a new unit gets its share of new tuples only, and a unit that
leaves keeps its tuples until they expire. A load curve has straight lines between points.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from math import isfinite
from typing import NamedTuple

from thetastream.core.errors import QueryError
from thetastream.families.pairs.cost import estimate_unit_work
from thetastream.families.pairs.workload import Inflow, Workload
from thetastream.index import REGISTRY
from thetastream.models import Biclique
from thetastream.runtime.control.policies import GroupLoad, Load, Policy

MOST_UNITS = 500
"""The largest number of units of a side. A policy that limits work may ask for ever more units, because with
random routing more units hardly reduce the work of each."""

ROUTABLE = ("hash", "hash_sorted")
"""The index shapes of conditions with an equality, by which tuples can be routed."""
SUBINDEXES = 11
"""Subindexes of a window: ten archive periods, and the one that is being filled."""


@dataclass(frozen=True)
class LoadCurve:
    """The tuples per second of both streams together, over time.

    Parameters
    ----------
    points : tuple of (float, float)
        (minute, tuples per second), in the order of time. Between two points, the rate is on the straight
        line. Before the first point and behind the last one, it does not change.

    Raises
    ------
    QueryError
        LOAD_CURVE if there are no points, they are not in order, all of them are before minute 0, a rate is
        negative, or a number is infinite.

    Examples
    --------
    >>> curve = LoadCurve(((0, 100), (10, 200)))
    >>> curve.rate(-1), curve.rate(150), curve.rate(3600)
    (100.0, 125.0, 200.0)
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        minutes = [minute for minute, _ in self.points]
        is_finite = all(isfinite(number) for point in self.points for number in point)
        if (
            not is_finite
            or not minutes
            or minutes != sorted(minutes)
            or minutes[-1] < 0
            or any(rate < 0 for _, rate in self.points)
        ):
            raise QueryError(
                "LOAD_CURVE",
                "a load curve must be points (minute, tuples per second) in the order of time, the last one "
                f"not before minute 0 and no rate below 0, not {self.points!r:.200}",
            )

    @property
    def end_s(self) -> float:
        """The time of the last point, in seconds."""
        return self.points[-1][0] * 60

    def rate(self, time_s: float) -> float:
        """Return the tuples per second of both streams together."""
        minute = time_s / 60
        before = self.points[0]
        for after in self.points:
            if minute < after[0]:
                share = (minute - before[0]) / (after[0] - before[0]) if after[0] > before[0] else 1.0
                return before[1] + max(0.0, share) * (after[1] - before[1])
            before = after
        return float(before[1])


BISTREAM = LoadCurve(
    (
        (0, 216_000),
        (7, 216_000),
        (10, 335_000),
        (22, 335_000),
        (23, 460_000),
        (25, 460_000),
        (26, 270_000),
        (30, 270_000),
        (31, 335_000),
        (36, 335_000),
        (39, 165_000),
        (50, 165_000),
    )
)
"""A curve of the form of BiStream's figure 12: a rise, a fluctuation from minute 22 to minute 31, and a fall.
The paper does not print its rates. These are chosen for tuples of 100 bytes, so that 8 units of 1.5 GB with a
window of 5 minutes are filled to 0.55 at first."""


def read_curve(text: str) -> LoadCurve:
    """Read a curve from CSV: lines of minute and tuples per second; a header may come first.

    Raises
    ------
    QueryError
        LOAD_CURVE.

    Examples
    --------
    >>> read_curve("minute,rate\\n0,100\\n5,300\\n").points
    ((0.0, 100.0), (5.0, 300.0))
    """
    lines = [line for line in csv.reader(StringIO(text)) if line]
    if lines and not _is_number(lines[0][0]):
        lines = lines[1:]
    try:
        return LoadCurve(tuple((float(minute), float(rate)) for minute, rate in lines))
    except ValueError as error:
        what = f"each line of a load curve must be a minute and a number of tuples per second: {error}"
        raise QueryError("LOAD_CURVE", what) from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Setting:
    """Two equal streams in a time window.

    Parameters
    ----------
    window_s : float
        The window in seconds.
    stored_bytes : float
        Bytes of a stored tuple with its share of the index.
    sent_bytes : float
        Bytes of a tuple in a block.
    index : str
        The index shape.
    candidates : float
        Stored tuples that the index offers to a probe.
    results : float
        Results that a tuple finds when it arrives.
    delay_s : float
        Delay of the watermark in seconds.
    """

    window_s: float = 300.0
    stored_bytes: float = 100.0
    sent_bytes: float = 60.0
    index: str = "sorted"
    candidates: float = 10.0
    results: float = 1.0
    delay_s: float = 0.0

    @property
    def span_s(self) -> float:
        """How long a tuple is stored, in seconds: the window and half an archive period on average."""
        return self.window_s * (1 + 0.5 / (SUBINDEXES - 1)) + self.delay_s

    def build_workload(self, rate: float) -> Workload:
        """Build the workload of ``rate`` tuples per second, both streams together."""
        left, right = (
            Inflow(alias, rate / 2, self.span_s, self.stored_bytes, self.sent_bytes, SUBINDEXES)
            for alias in ("a", "b")
        )
        content = "hash" if self.index in ROUTABLE else None
        return Workload(
            (left, right), REGISTRY[self.index], self.candidates, heaviest_key=0.0, content=content
        )


class Step(NamedTuple):
    """What the simulated join looks like after an epoch."""

    time_s: float
    rate: float
    """Tuples per second of both streams."""
    units: tuple[int, int]
    """Units that store left tuples, and units that store right tuples, from now on."""
    mlv_bytes: tuple[float, float]
    """MLV of both sides, units that leave included."""
    fullest_bytes: float
    """MLV of the fullest unit."""
    busiest: float
    """The share of the time for which the busiest unit works."""
    is_change: bool
    """Whether the policy has changed the units in this epoch."""


def replay(
    policy: Policy, curve: LoadCurve, setting: Setting, units: tuple[int, int], epoch_s: float = 10.0
) -> Iterator[Step]:
    """Replay a load curve, epoch by epoch. The windows are full when the curve begins.

    Parameters
    ----------
    policy : Policy
    curve : LoadCurve
    setting : Setting
        The tuples, the window and the condition.
    units : (int, int)
        The units of both sides at the beginning.
    epoch_s : float
        Seconds of an epoch.
    """
    sides = [_Side(n, []) for n in units]
    decider = policy.begin()
    work = lru_cache(maxsize=256)(_estimate_work)
    for number in range(-int(setting.span_s // epoch_s) - 1, int(curve.end_s // epoch_s) + 1):
        time_s = number * epoch_s
        rate = curve.rate(time_s)
        for side in sides:
            side.add(time_s, setting.span_s, rate / 2 * epoch_s * setting.stored_bytes)
        if number < 0:
            continue
        sizes = sides[0].n_units, sides[1].n_units
        per_unit = work(setting, float(f"{rate:.2g}"), sizes)
        left, right = per_unit[: sizes[0]], per_unit[sizes[0] :]
        groups = tuple(
            GroupLoad(side.n_units, side.nbytes, sum(mine) * epoch_s)
            for side, mine in zip(sides, (left, right), strict=True)
        )
        decided = decider.decide(Load(time_s, epoch_s, groups))
        # Simulated units are equally strong, so no policy changes their shares.
        for side, n_units in zip(sides, decided if isinstance(decided, tuple) else sizes, strict=True):
            side.n_units = min(n_units, MOST_UNITS)
        yield Step(
            time_s,
            rate,
            (sides[0].n_units, sides[1].n_units),
            (sides[0].nbytes, sides[1].nbytes),
            max(side.fullest for side in sides),
            max(per_unit),
            decided is not None,
        )


def _estimate_work(setting: Setting, rate: float, units: tuple[int, int]) -> tuple[float, ...]:
    return tuple(estimate_unit_work(Biclique(units), setting.build_workload(rate)).tolist())


class _Stored(NamedTuple):
    """The tuples of one side that arrived in one epoch."""

    expires_s: float
    nbytes: float
    n_units: int
    """They are spread evenly over the units from 0 to ``n_units`` - 1."""


@dataclass
class _Side:
    n_units: int
    stored: list[_Stored]

    def add(self, time_s: float, span_s: float, nbytes: float) -> None:
        """Store the tuples of an epoch, and drop those that have expired."""
        self.stored = [one for one in self.stored if one.expires_s > time_s]
        self.stored.append(_Stored(time_s + span_s, nbytes, self.n_units))

    @property
    def nbytes(self) -> float:
        return sum(one.nbytes for one in self.stored)

    @property
    def fullest(self) -> float:
        most = max([self.n_units, *(one.n_units for one in self.stored)])
        return max(
            sum(one.nbytes / one.n_units for one in self.stored if one.n_units > unit) for unit in range(most)
        )
