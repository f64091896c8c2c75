"""Windows: how long a tuple stays joinable, measured in event time or in tuples."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from thetastream.errors import QueryError

MOST_ROWS = 1 << 48
LONGEST_US = 3_652_500 * 86_400_000_000
"""The longest span of event time: 10,000 years. An event time plus many such spans fits in int64."""


@dataclass(frozen=True)
class Rows:
    """A count window: an arriving tuple meets the last ``n`` tuples of each other stream.

    Raises
    ------
    QueryError
        INVALID_WINDOW if ``n`` is not an integer from 1 to 2**48.

    Examples
    --------
    >>> Rows(1000)
    Rows(n=1000)
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or not 1 <= self.n <= MOST_ROWS:
            raise QueryError(
                "INVALID_WINDOW", f"th.Rows(n) needs an integer from 1 to {MOST_ROWS}, not {self.n!r}"
            )


Duration: TypeAlias = str | timedelta
"""An interval: text that ``withWatermark`` understands, as in ``"10 minutes"``, or a ``timedelta``."""

Within: TypeAlias = Duration | Rows | Mapping[str, Duration | Rows] | None
"""One window for all streams or one per alias, in event time or in tuples. None means the full history."""


def to_micros(duration: timedelta) -> int:
    """Convert a duration to whole microseconds, exactly.

    >>> to_micros(timedelta(minutes=-5))
    -300000000
    """
    return (duration.days * 86_400 + duration.seconds) * 1_000_000 + duration.microseconds


def spell(micros: int | None) -> str:
    """Write a span of event time in words.

    >>> spell(90_000_000), spell(3_600_000_000), spell(-1_500), spell(None)
    ('90 seconds', '1 hour', '-1500 microseconds', 'unbounded')
    """
    if micros is None:
        return "unbounded"
    for unit, size in (
        ("day", 86_400_000_000),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 10**6),
    ):
        if micros and micros % size == 0:
            n = micros // size
            return f"{n} {unit}" + ("" if abs(n) == 1 else "s")
    return f"{micros} microseconds"
