"""Reads plain numbers and intervals as Spark does, so that planning a join starts no job for them."""

import re
from datetime import timedelta
from decimal import Decimal

from thetastream.core.spans import parse_duration
from thetastream.lowering.query import Constant

_NUMBER = re.compile(r"-?\d{1,9}(\.\d{1,9})?", re.ASCII)
"""A number that is INT or DECIMAL for Spark, whatever its digits are."""
_AS_DOUBLE = re.compile(r"CAST\(CAST\(\((.+?)\) AS (int|bigint|double)\) AS DOUBLE\)")
"""A limit in the type in which Spark compares it."""
_SPAN = r"\d{1,6} +(?:microsecond|millisecond|second|minute|hour|day|week)s?"
_INTERVAL = re.compile(
    rf"INTERVAL +(?:(?P<bare>{_SPAN})|'(?P<quoted>{_SPAN}(?: +{_SPAN})*)'"
    r"|'(?P<digits>\d{1,6})' +(?P<unit>second|minute|hour|day))",
    re.IGNORECASE | re.ASCII,
)
"""An interval of whole numbers of days, hours, or shorter units."""


def read_number(text: str) -> Constant | None:
    """Read a number of at most nine digits before and behind the point, with the type that Spark gives it.

    >>> read_number("-10"), read_number("0.05")
    (Constant(type='int', value=-10), Constant(type='decimal(2,2)', value=Decimal('0.05')))
    >>> read_number("CAST(CAST((0.9) AS double) AS DOUBLE)")
    Constant(type='double', value=0.9)
    """
    converted = _AS_DOUBLE.fullmatch(text)
    number = text if converted is None else converted[1]
    if not _NUMBER.fullmatch(number):
        return None
    if converted is not None:
        is_cut = "." in number and converted[2] != "double"
        return None if is_cut else Constant("double", float(number) + 0.0)  # Spark has no -0.0 here.
    if "." not in number:
        return Constant("int", int(number))
    value = Decimal(number)
    scale = len(number.partition(".")[2])
    return Constant(f"decimal({max(len(value.as_tuple().digits), scale)},{scale})", value)


def read_interval(text: str) -> timedelta | None:
    """Read an interval of whole days, hours and shorter units. Return None if it is another text.

    >>> str(read_interval("INTERVAL 5 MINUTES")), str(read_interval("interval '1 day 2 hours'"))
    ('0:05:00', '1 day, 2:00:00')
    >>> read_interval("INTERVAL 3 MONTHS"), read_interval("INTERVAL '1:30' MINUTE TO SECOND")
    (None, None)
    """
    found = _INTERVAL.fullmatch(text)
    if found is None:
        return None
    return parse_duration(found["bare"] or found["quoted"] or f"{found['digits']} {found['unit']}")
