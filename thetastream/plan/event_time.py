"""Reads bounds on event times in a condition as a window.

    l.ts + p OP r.ts + q        ->   l.ts - r.ts OP q - p        (microseconds)
    abs(l.ts - r.ts) <= c       ->   -c <= l.ts - r.ts <= c

Spark adds whole days of an interval in local time, and it also subtracts timestamps in local time. If a local
day may have 23 or 25 hours, such a bound is widened by ``SLACK_US``, and the conjunct is evaluated again
behind the join.
"""

from dataclasses import dataclass

from thetastream.core.spark_types import is_day_time
from thetastream.core.windows import LONGEST_US, to_micros
from thetastream.plan.query import Resolver, Stream
from thetastream.predicate import Phrase
from thetastream.predicate.names import find_references
from thetastream.predicate.split import find_last_additive

DAY_US = 86_400_000_000
SLACK_US = 26 * 3_600_000_000
"""This is more than any time zone has ever shifted its clock. Samoa once skipped a whole day."""


@dataclass(frozen=True)
class Offset:
    """An event time plus a constant: ``ts + us``. It is exact to the microsecond if ``is_exact``."""

    us: int
    is_exact: bool


def find_column(phrase: Phrase, stream: Stream, is_case_sensitive: bool) -> str | None:
    """Return the column of ``stream`` if the phrase is only a column, else None."""
    phrase = phrase.bare()
    if len(phrase.tokens) != 3 or phrase.tokens[1].kind != "DOT":
        return None
    alias, _, name = phrase.tokens
    if alias.name.casefold() != stream.alias.casefold():
        return None
    return stream.find(name.name, is_case_sensitive)


def read_offset(phrase: Phrase, stream: Stream, resolver: Resolver) -> Offset | None:
    """Read ``phrase`` as the event time of ``stream`` plus a constant. Return None if it has another form."""
    phrase = phrase.bare()
    if stream.event_time is None:
        return None
    if find_column(phrase, stream, resolver.is_case_sensitive) == stream.event_time:
        return Offset(0, True)
    sign = find_last_additive(phrase)
    if sign is None:
        return None
    before, after = phrase.slice(0, sign), phrase.slice(sign + 1)
    is_minus = phrase.tokens[sign].kind == "DASH"
    if not find_references(after, [stream.alias]):
        base, added = read_offset(before, stream, resolver), read_interval_us(after, resolver)
    elif not is_minus and not find_references(before, [stream.alias]):
        base, added = read_offset(after, stream, resolver), read_interval_us(before, resolver)
    else:
        return None
    if base is None or added is None:
        return None
    is_whole = is_local_free(stream, resolver) or abs(added) < DAY_US
    return Offset(base.us - added if is_minus else base.us + added, base.is_exact and is_whole)


def read_interval_us(phrase: Phrase, resolver: Resolver) -> int | None:
    """Return the microseconds of a constant day-time interval, or None if it is something else.

    A bound of more than 10,000 years is not used as a window. Catalyst evaluates it as it evaluates any other
    expression.
    """
    constant = resolver.constant(phrase.text)
    if constant is None or constant.value is None or not is_day_time(constant.type):
        return None
    micros = to_micros(constant.value)
    return micros if abs(micros) <= LONGEST_US else None


def is_local_free(stream: Stream, resolver: Resolver) -> bool:
    """Whether all local days of this event time have 24 hours."""
    assert stream.event_time is not None
    return resolver.zone_is_fixed or stream.type_of(stream.event_time) == "timestamp_ntz"
