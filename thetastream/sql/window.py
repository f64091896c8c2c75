"""WITHIN: an interval or a number of rows, one for all streams or one per alias."""

from typing import TypeAlias

from thetastream.predicate import Phrase, pointed
from thetastream.windows import Duration, Rows

Window: TypeAlias = Duration | Rows


def read_within(text: str, phrase: Phrase, aliases: dict[str, str]) -> Window | dict[str, Window]:
    """The window of a WITHIN clause; ``aliases`` maps folded aliases to aliases."""
    parts = phrase.at_commas()
    spans: dict[str, Window] = {}
    for part in parts:
        if not part:
            raise pointed(text, phrase.tokens[0].start, "an interval is missing between commas")
        first = part.tokens[0]
        is_named = (first.text[0].isalpha() and first.keyword != "INTERVAL") or first.text[0] in "_`"
        if is_named and first.name.casefold() not in aliases:
            raise pointed(
                text,
                first.start,
                f"WITHIN names {first.name!r}, which is not one of {', '.join(aliases.values())}",
                "UNKNOWN_ALIAS",
            )
        span = part.slice(1) if is_named else part
        if not span:
            raise pointed(text, first.start, f"an interval must follow {first.text!r}")
        if not is_named and len(parts) > 1:
            raise pointed(text, first.start, "several windows need the name of a stream each")
        if is_named and aliases[first.name.casefold()] in spans:
            raise pointed(text, first.start, f"{first.text!r} has two windows")
        window = _rows(text, span) if span.tokens[-1].keyword == "ROWS" else _interval(span)
        if not is_named:
            return window
        spans[aliases[first.name.casefold()]] = window
    return spans


def _rows(text: str, span: Phrase) -> Rows:
    count = span.tokens[0]
    if len(span.tokens) != 2 or not count.text.isdecimal() or not int(count.text):
        raise pointed(text, count.start, "a count window is a number from 1 on and ROWS, as in 1000 ROWS")
    return Rows(int(count.text))


def _interval(span: Phrase) -> str:
    """``INTERVAL '10' MINUTES`` and ``10 minutes`` alike as what withWatermark reads."""
    words = span.tokens[1:] if span.tokens[0].keyword == "INTERVAL" else span.tokens
    return " ".join(token.text.strip("'\"") for token in words)
