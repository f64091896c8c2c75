"""Reads spans of time, sizes in bytes, windows and triggers as people write them.

    span       5m, 15 mins, 1h 30m, 1 day 2 hours, 0.5 s
    size       1.5 GB, 64 MiB, 800 kB, or a number of bytes
    trigger    "available now", or a span

The units of a span are those of Spark's intervals and their usual short forms. Months and years have no fixed
length, so they are not units of a span. A window says how long a tuple stays joinable, in event time or in
tuples. A trigger says how often a query starts an epoch.
"""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, TypeAlias

from thetastream.core.arguments import describe_given, hint_unit
from thetastream.core.errors import QueryError

_SHORT_FORMS = {
    "microsecond": ("us", "µs", "μs", "usec", "micro", "microsecond"),
    "millisecond": ("ms", "msec", "milli", "millisecond"),
    "second": ("s", "sec", "second"),
    "minute": ("m", "min", "minute"),
    "hour": ("h", "hr", "hour"),
    "day": ("d", "day"),
    "week": ("w", "wk", "week"),
}
_SIZES_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_NAMES = {name: _SIZES_US[unit] for unit, names in _SHORT_FORMS.items() for name in names}
_NAMES |= {f"{name}s": size for name, size in _NAMES.items() if len(name) > 1 and name[-1] != "s"}
_PART = re.compile(r"\s*([+-]?)\s*(\d+(?:\.\d+)?|\.\d+)\s*([^\W\d_]+)\s*,?")
_SIZES = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_OF_SPARK = re.compile(
    r"\s*interval\b.+|(\s*[+-]?\s*\d+(\.\d+)?\s*"
    r"(year|month|week|day|hour|minute|second|millisecond|microsecond)s?\b)+\s*",
    re.IGNORECASE | re.DOTALL,
)
"""An interval in the words of Spark."""
MOST_ROWS = 1 << 48
LONGEST_US = 3_652_500 * 86_400_000_000
"""The longest span of event time: 10,000 years. An event time plus many such spans fits in int64."""
Duration: TypeAlias = str | timedelta
"""An interval: text that ``withWatermark`` understands, as in ``"10 minutes"``, or a ``timedelta``."""
AVAILABLE_NOW = "available now"
"""The trigger of a query that ends when it has read what is there. Spark's spelling is accepted too."""


def parse_duration(text: str) -> timedelta | None:
    """Read a span of time. Return None if this is another kind of text, or no whole number of microseconds.

    Examples
    --------
    >>> [str(parse_duration(text)) for text in ("5m", "15 mins", "1h30m", "1 day 2 hours", "0.5s", "250ms")]
    ['0:05:00', '0:15:00', '1:30:00', '1 day, 2:00:00', '0:00:00.500000', '0:00:00.250000']
    >>> [parse_duration(text) for text in ("", "5", "soon", "3 months", "5M", "0.1us")]
    [None, None, None, None, None, None]
    """
    total, at = Fraction(0), 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None:
            return None
        sign, number, name = part.groups()
        # A single M stands for months in many programs, and for minutes in others.
        size = None if name == "M" else _NAMES.get(name.lower())
        if size is None:
            return None
        total += Fraction(number) * size * (-1 if sign == "-" else 1)
        at = part.end()
    if not at or total.denominator != 1:
        return None
    try:
        return timedelta(microseconds=int(total))
    except OverflowError:
        return None


def parse_nbytes(given: object) -> int | None:
    """Read a positive number of bytes. Return None if this is something else.

    Examples
    --------
    >>> [parse_nbytes(given) for given in ("1.5 GB", "64MiB", 1000, "1000")]
    [1500000000, 67108864, 1000, 1000]
    >>> [parse_nbytes(given) for given in ("", "much", "-1 GB", "5 parsecs", 0, True, None)]
    [None, None, None, None, None, None, None]
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return given if given > 0 else None
    found = _TEXT.fullmatch(given) if isinstance(given, str) else None
    size = None if found is None else _SIZES.get(found[2].lower())
    if found is None or size is None:
        return None
    return int(Fraction(found[1]) * size) or None


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
            what = f"th.Rows(n) needs an integer from 1 to {MOST_ROWS}"
            raise QueryError("INVALID_WINDOW", f"{what}, not {describe_given(self.n)}")


Within: TypeAlias = Duration | Rows | Mapping[str, Duration | Rows] | None
"""One window for all streams or one per alias, in event time or in tuples. None means the full history."""


def read_span(value: object) -> timedelta | None:
    """Read a span of time that is given as a text or as a timedelta. Return None if it is neither.

    >>> str(read_span("90s")), read_span(timedelta(1)), read_span("soon"), read_span(90)
    ('0:01:30', datetime.timedelta(days=1), None, None)
    """
    if isinstance(value, str):
        return parse_duration(value)
    return value if isinstance(value, timedelta) else None


def read_positive_span(value: object, what: str, condition: str = "BAD_VALUE") -> timedelta:
    """Read a span of time above zero. ``what`` says what must be one, and begins the error.

    Raises
    ------
    QueryError
        ``condition``.
    """
    span = read_span(value)
    if span is None or span <= timedelta(0):
        raise QueryError(condition, f"{what}, not {describe_given(value)}{hint_unit(value)}")
    return span


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


def is_available_now(trigger: object) -> bool:
    """Whether a trigger ends the query when all available input has been read.

    >>> [is_available_now(trigger) for trigger in ("available now", "availableNow", "available", None)]
    [True, True, False, False]
    """
    return isinstance(trigger, str) and "".join(trigger.split()).casefold() == "availablenow"


def read_trigger(trigger: str | None) -> dict[str, Any]:
    """Return the arguments of Spark's ``DataStreamWriter.trigger``.

    If there is no trigger, epochs follow one another without a pause.

    Raises
    ------
    QueryError
        BAD_VALUE.

    Examples
    --------
    >>> read_trigger("availableNow"), read_trigger("5m")
    ({'availableNow': True}, {'processingTime': '300000000 microseconds'})
    """
    if trigger is None:
        return {"processingTime": "0 seconds"}
    if is_available_now(trigger):
        return {"availableNow": True}
    span = parse_duration(trigger) if isinstance(trigger, str) else None
    if span is None or span < timedelta():
        what = f'trigger must be "{AVAILABLE_NOW}" or the time between two epochs'
        hint = hint_unit(trigger)
        raise QueryError("BAD_VALUE", f'{what}, as in "10 seconds", not {describe_given(trigger)}{hint}')
    return {"processingTime": write_delay(span)}


def is_delay(value: object) -> bool:
    """Whether a value is a span of time that ``write_delay`` writes for Spark, which also reads months.

    >>> [is_delay(value) for value in ("5m", "1 month 2 days", timedelta(1), "INTERVAL '1' DAY")]
    [True, True, True, True]
    >>> [is_delay(value) for value in ("often", "10 secnds", "60", 60, "")]
    [False, False, False, False, False]
    """
    if read_span(value) is not None:
        return True
    return isinstance(value, str) and _OF_SPARK.fullmatch(value) is not None


def read_delay(value: Any, name: str) -> str:
    """Read a delay, and write it in the form that Spark reads. ``name`` is what the user calls the argument.

    Raises
    ------
    QueryError
        INVALID_DURATION if the value is no span of time, or is negative. Spark itself checks a text that
        begins with INTERVAL.

    Examples
    --------
    >>> read_delay("5m", "slack")
    '300000000 microseconds'
    """
    if not is_delay(value):
        raise make_span_error(name, value)
    span = read_span(value)
    if span is not None and span < timedelta():
        raise make_negative_error(name, value)
    return write_delay(value)


def make_span_error(name: str, value: object, hint: str = "") -> QueryError:
    """Make the error of a value that is no span of time. ``name`` is what the user calls it.

    Without a ``hint``, the error says how to write a span of time.
    """
    hint = hint or hint_unit(value) or '; write it as in "10 seconds"'
    given = describe_given(value)
    if given == "a str":  # Both ends of a long text say what is wrong.
        given = reprlib.repr(value)
    return QueryError("INVALID_DURATION", f"{name} ({given}) is no span of time{hint}")


def make_negative_error(name: str, value: object) -> QueryError:
    """Make the error of a span of time that is negative. ``name`` is what the user calls it."""
    what = f"{name} ({describe_given(value)}) must not be negative"
    return QueryError("INVALID_DURATION", f'{what}; write it as in "10 seconds"')


def write_delay(delay: Duration) -> str:
    """Write a delay in the form that Spark reads.

    >>> write_delay("5m"), write_delay(timedelta(seconds=1.5)), write_delay("1 month")
    ('300000000 microseconds', '1500000 microseconds', '1 month')
    """
    span = delay if isinstance(delay, timedelta) else parse_duration(delay)
    return str(delay) if span is None else f"{to_micros(span)} microseconds"
