"""Parses WITHIN: an interval or a number of rows, either one for all streams or one per alias."""

from typing import TypeAlias

from thetastream.core.windows import Duration, Rows
from thetastream.predicate import Phrase, make_error_at

Window: TypeAlias = Duration | Rows


def read_within(text: str, phrase: Phrase, aliases: dict[str, str]) -> Window | dict[str, Window]:
    """Parse the window of a WITHIN clause; ``aliases`` maps case-folded aliases to aliases."""
    parts = phrase.split_at_commas()
    spans: dict[str, Window] = {}
    for part in parts:
        if not part:
            raise make_error_at(text, phrase.tokens[0].start, "an interval is missing between commas")
        first = part.tokens[0]
        is_named = first.may_be_name and first.keyword != "INTERVAL"
        if is_named and first.name.casefold() not in aliases:
            raise make_error_at(
                text,
                first.start,
                f"WITHIN names {first.name!r}, which is not one of {', '.join(aliases.values())}",
                "UNKNOWN_ALIAS",
            )
        span = part.slice(1) if is_named else part
        if not span:
            raise make_error_at(text, first.start, f"an interval must follow {first.text!r}")
        if not is_named and len(parts) > 1:
            raise make_error_at(text, first.start, "several windows need the name of a stream each")
        if is_named and aliases[first.name.casefold()] in spans:
            raise make_error_at(text, first.start, f"{first.text!r} has two windows")
        window = _read_rows(text, span) if span.tokens[-1].keyword == "ROWS" else _read_interval(span)
        if not is_named:
            return window
        spans[aliases[first.name.casefold()]] = window
    return spans


def _read_rows(text: str, span: Phrase) -> Rows:
    count = span.tokens[0]
    if len(span.tokens) != 2 or not count.text.isdecimal() or not int(count.text):
        raise make_error_at(
            text, count.start, "a count window is a number from 1 on and ROWS, as in 1000 ROWS"
        )
    return Rows(int(count.text))


def _read_interval(span: Phrase) -> str:
    """Write ``INTERVAL '10' MINUTES`` or ``10 minutes`` in the form that ``withWatermark`` reads."""
    words = span.tokens[1:] if span.tokens[0].keyword == "INTERVAL" else span.tokens
    return " ".join(token.text.strip("'\"") for token in words)
