"""Event-time bounds written in a condition, as a window.

    l.ts + p OP r.ts + q        ->   l.ts - r.ts OP q - p        (microseconds)
    abs(l.ts - r.ts) <= c       ->   -c <= l.ts - r.ts <= c

Spark adds whole days of an interval, and subtracts timestamps, on the local clock. Where a local day may
have 23 or 25 hours, such a bound is widened by ``SLACK_US`` and the conjunct is compared again as it stands.
"""

from dataclasses import dataclass

from thetastream.plan.domains import is_day_time
from thetastream.plan.query import Resolver, Stream
from thetastream.predicate import Phrase
from thetastream.predicate.names import references
from thetastream.predicate.split import last_additive
from thetastream.windows import micros

DAY_US = 86_400_000_000
SLACK_US = 26 * 3_600_000_000
"""More than any zone has ever shifted its clock (Samoa skipped a day)."""


@dataclass(frozen=True)
class Offset:
    """An event time plus a constant: ``ts + us``, to the microsecond if ``is_exact``."""

    us: int
    is_exact: bool


def column_of(phrase: Phrase, stream: Stream, is_case_sensitive: bool) -> str | None:
    """The column of ``stream`` that the phrase is, bare; None if it is anything else."""
    phrase = phrase.bare()
    if len(phrase.tokens) != 3 or phrase.tokens[1].kind != "DOT":
        return None
    alias, _, name = phrase.tokens
    if alias.name.casefold() != stream.alias.casefold():
        return None
    return stream.find(name.name, is_case_sensitive)


def offset_of(phrase: Phrase, stream: Stream, resolver: Resolver) -> Offset | None:
    """``phrase`` as the event time of ``stream`` plus a constant, or None."""
    phrase = phrase.bare()
    if stream.event_time is None:
        return None
    if column_of(phrase, stream, resolver.is_case_sensitive) == stream.event_time:
        return Offset(0, True)
    sign = last_additive(phrase)
    if sign is None:
        return None
    before, after = phrase.slice(0, sign), phrase.slice(sign + 1)
    is_minus = phrase.tokens[sign].kind == "DASH"
    if not references(after, [stream.alias]):
        base, added = offset_of(before, stream, resolver), interval_us(after, resolver)
    elif not is_minus and not references(before, [stream.alias]):
        base, added = offset_of(after, stream, resolver), interval_us(before, resolver)
    else:
        return None
    if base is None or added is None:
        return None
    is_whole = is_local_free(stream, resolver) or abs(added) < DAY_US
    return Offset(base.us - added if is_minus else base.us + added, base.is_exact and is_whole)


def interval_us(phrase: Phrase, resolver: Resolver) -> int | None:
    """Microseconds of a constant day-time interval, or None."""
    constant = resolver.constant(phrase.text)
    if constant is None or constant.value is None or not is_day_time(constant.type):
        return None
    return micros(constant.value)


def is_local_free(stream: Stream, resolver: Resolver) -> bool:
    """Whether local days of this event time always have 24 hours."""
    assert stream.event_time is not None
    return resolver.zone_is_fixed or stream.type_of(stream.event_time) == "timestamp_ntz"
