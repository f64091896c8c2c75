"""Reads spans of time as people write them: ``5m``, ``15 mins``, ``1h 30m``, ``1 day 2 hours``, ``0.5 s``.

The units are those of Spark's intervals and their usual short forms. Months and years have no fixed length,
so they are not units of a span.
"""

import re
from datetime import timedelta
from fractions import Fraction

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
