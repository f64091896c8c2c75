"""Event times in conditions: which columns they are, and their differences as elapsed time.

    a.ts - b.ts   ->   INTERVAL '0.000001' SECOND * (unix_micros(a.ts) - unix_micros(b.ts))

Spark subtracts two TIMESTAMPs as local times. In the hour that a clock repeats, an event of 05:45Z and one of
06:29:59Z both have a local time between 01:00 and 02:00, and Spark's difference says that the later one is
15 minutes earlier. Event times are instants, so a difference between two streams is elapsed time wherever it
is in a condition. A difference between two columns of one stream is an expression of the user, and Spark
computes it.

Spark adds whole days of an interval in local time. If a local day may have 23 or 25 hours, such a bound is
widened by ``SLACK_US``, and the conjunct is evaluated again behind the join.
"""

from collections.abc import Iterator, Sequence

from thetastream.conditions import Phrase, parse
from thetastream.conditions.names import find_references
from thetastream.conditions.phrases import find_difference_operands
from thetastream.core.spark_types import DATETIME
from thetastream.lowering.domains import write_cast
from thetastream.lowering.query import Resolver, Stream

DAY_US = 86_400_000_000
SLACK_US = 26 * 3_600_000_000
"""This is more than any time zone has ever shifted its clock. Samoa once skipped a whole day."""
_MICROSECOND = "INTERVAL '0.000001' SECOND"


def find_column(phrase: Phrase, stream: Stream, is_case_sensitive: bool) -> str | None:
    """Return the column of ``stream`` if the phrase is only a column, else None."""
    phrase = phrase.bare()
    if len(phrase.tokens) != 3 or phrase.tokens[1].kind != "DOT":
        return None
    alias, _, name = phrase.tokens
    if alias.name.casefold() != stream.alias.casefold():
        return None
    return stream.find(name.name, is_case_sensitive)


def write_elapsed_time(phrase: Phrase, aliases: Sequence[str], resolver: Resolver) -> str:
    """Write a phrase whose differences of instants of two streams are elapsed time.

    In a time zone whose clock never changes, the phrase stays as it is.
    """
    while not resolver.zone_is_fixed:
        found = next(_find_differences(phrase, aliases, resolver), None)
        if found is None:
            break
        (before, _), (after, _) = found
        start, end = before.tokens[0].start, after.tokens[-1].end
        # unix_micros reads a TIMESTAMP_NTZ as if it were in UTC.
        micros = [f"unix_micros({write_cast(phrase.text, type_, 'timestamp')})" for phrase, type_ in found]
        written = f"({_MICROSECOND} * ({micros[0]} - {micros[1]}))"
        base = phrase.tokens[0].start
        text = phrase.text
        phrase = parse(text[: start - base] + written + text[end - base :])
    return phrase.text


def _find_differences(
    phrase: Phrase, aliases: Sequence[str], resolver: Resolver
) -> Iterator[tuple[tuple[Phrase, str], tuple[Phrase, str]]]:
    """Yield both operands of each difference of instants, and their types."""
    for before, after in find_difference_operands(phrase):
        owners = [find_references(operand, aliases) for operand in (before, after)]
        if not all(owners) or len({*owners[0], *owners[1]}) < 2:
            continue
        types = [
            resolver.type_of(operand.text, owner) or ""
            for operand, owner in zip((before, after), owners, strict=True)
        ]
        if "timestamp" in types and all(type_ in DATETIME for type_ in types):
            yield (before, types[0]), (after, types[1])
