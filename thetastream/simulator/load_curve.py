"""Load curves: the arrivals of both streams over time, as straight lines between points."""

import csv
from dataclasses import dataclass
from io import StringIO
from math import isfinite

from thetastream.core.errors import QueryError


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
