"""The time zone of a session. Spark refuses a wrong one only when the first expression needs it."""

import re
from difflib import get_close_matches
from zoneinfo import available_timezones

from pyspark.sql import SparkSession

from thetastream.core.arguments import describe_given
from thetastream.core.errors import QueryError

TIME_ZONE = "spark.sql.session.timeZone"
_REGION = re.compile(r"[A-Za-z_]{4,}|[A-Za-z_]+/.+")
"""The name of a region. Other forms, such as ``+02:00``, ``UTC+1`` and ``PST``, are left to Spark."""


def read_zone(spark: SparkSession) -> str:
    """Return the time zone of a session."""
    return str(spark.conf.get(TIME_ZONE))


def refuse_unknown_zone(zone: object) -> None:
    """Raise BAD_VALUE if a text has the form of a region and names none.

    >>> [refuse_unknown_zone(zone) for zone in ("UTC", "Asia/Tokyo", "+02:00", None)]
    [None, None, None, None]
    """
    # A machine without the data of time zones cannot tell.
    known = available_timezones() if isinstance(zone, str) and _REGION.fullmatch(zone) else set()
    if not known or zone in known or str(zone).startswith("SystemV/"):
        return
    by_city = {name.rpartition("/")[2]: name for name in sorted(known, reverse=True)}
    near = get_close_matches(str(zone), known, 1) or [
        by_city[city] for city in get_close_matches(str(zone), by_city, 1)
    ]
    what = f'{TIME_ZONE} must be a time zone such as "UTC" or "Europe/Berlin", not {describe_given(zone)}'
    raise QueryError("BAD_VALUE", what + "".join(f"; did you mean {one!r}?" for one in near))
