"""Finds the columns that are event times, and how far local time may be from them.

Spark adds whole days of an interval in local time. If a local
day may have 23 or 25 hours, such a bound is widened by ``SLACK_US``, and the conjunct is evaluated again
behind the join.
"""

from thetastream.conditions import Phrase
from thetastream.lowering.query import Stream

DAY_US = 86_400_000_000
SLACK_US = 26 * 3_600_000_000
"""This is more than any time zone has ever shifted its clock. Samoa once skipped a whole day."""


def find_column(phrase: Phrase, stream: Stream, is_case_sensitive: bool) -> str | None:
    """Return the column of ``stream`` if the phrase is only a column, else None."""
    phrase = phrase.bare()
    if len(phrase.tokens) != 3 or phrase.tokens[1].kind != "DOT":
        return None
    alias, _, name = phrase.tokens
    if alias.name.casefold() != stream.alias.casefold():
        return None
    return stream.find(name.name, is_case_sensitive)
