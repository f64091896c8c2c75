"""Parses the head of a statement, which comes before its SELECT: CREATE VIEW ... AS, or INSERT INTO ....

WITHIN, at the end of a statement, is an interval or a number of rows, either one for all streams or one per
alias.
"""

from thetastream.conditions.statement import Insert, View, Window
from thetastream.conditions.tokens import Phrase, make_error_at
from thetastream.core.spans import Rows


def read_head(text: str, phrase: Phrase) -> tuple[View | Insert | None, Phrase]:
    """Parse the head of a statement; return the head and the rest, which is the SELECT."""
    word = phrase.tokens[0].keyword if phrase else ""
    if word == "CREATE":
        return _read_view(text, phrase)
    if word == "INSERT":
        return _read_insert(text, phrase)
    return None, phrase


def _read_view(text: str, phrase: Phrase) -> tuple[View, Phrase]:
    n = 1
    is_replaced = _is_at(phrase, n, "OR", "REPLACE")
    if is_replaced:
        n += 2
    if _is_at(phrase, n, "GLOBAL"):
        what = "a view belongs to its session, and GLOBAL is not supported"
        raise make_error_at(text, phrase.tokens[n].start, what, "UNSUPPORTED_SQL")
    if _is_at(phrase, n, "TEMPORARY") or _is_at(phrase, n, "TEMP"):
        n += 1
    if not _is_at(phrase, n, "VIEW"):
        token = phrase.tokens[min(n, len(phrase.tokens) - 1)]
        raise make_error_at(
            text, token.start, "CREATE makes views only: CREATE VIEW name AS SELECT ...", "UNSUPPORTED_SQL"
        )
    name, columns, n = _read_target(text, phrase, n + 1, "VIEW")
    if len(name.tokens) > 1:
        what = "the name of a view has no dots, because a view belongs to its session"
        raise make_error_at(text, name.tokens[0].start, what)
    if not _is_at(phrase, n, "AS"):
        last = phrase.tokens[n].start if n < len(phrase.tokens) else phrase.tokens[-1].end
        raise make_error_at(text, last, "AS SELECT ... must follow the name of the view")
    token = name.tokens[0]
    return View(token.name, token.start, columns, is_replaced), phrase.slice(n + 1)


def _read_insert(text: str, phrase: Phrase) -> tuple[Insert, Phrase]:
    if not _is_at(phrase, 1, "INTO"):
        token = phrase.tokens[min(1, len(phrase.tokens) - 1)]
        what = "INSERT must be followed by INTO; results are appended, and overwrite nothing"
        raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")
    n = 3 if _is_at(phrase, 2, "TABLE") else 2
    name, columns, n = _read_target(text, phrase, n, "INTO")
    return Insert(name.text, name.tokens[0].start, columns), phrase.slice(n)


def _read_target(text: str, phrase: Phrase, n: int, before: str) -> tuple[Phrase, tuple[str, ...], int]:
    """Read a name and its columns at token ``n``; return both and the position behind them."""
    tokens = phrase.tokens
    is_name = n < len(tokens) and tokens[n].may_be_name
    if not is_name or tokens[n].keyword in ("SELECT", "WITH", "AS", "VALUES"):
        position = tokens[n].start if n < len(tokens) else tokens[-1].end
        raise make_error_at(text, position, f"a name must follow {before}")
    end = n + 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name, columns = phrase.slice(n, end), tuple[str, ...]()
    if end < len(tokens) and tokens[end].text == "(" and tokens[end + 1].keyword not in ("SELECT", "WITH"):
        close = next(i for i in phrase.top if i > end and tokens[i].text == ")")
        columns, end = _read_names(text, phrase.slice(end, close + 1)), close + 1
    return name, columns, end


def _read_names(text: str, phrase: Phrase) -> tuple[str, ...]:
    """Read a list of names in parentheses."""
    parts = phrase.slice(1, -1).split_at_commas()
    for part in parts:
        if len(part.tokens) != 1 or not (part.text[0].isalnum() or part.text[0] in "_`"):
            wrong = (part.tokens or phrase.tokens)[0]
            raise make_error_at(text, wrong.start, "column names must be here, with commas between them")
    return tuple(part.tokens[0].name for part in parts)


def _is_at(phrase: Phrase, n: int, *words: str) -> bool:
    """Whether these words stand at token ``n``."""
    return tuple(token.keyword for token in phrase.tokens[n : n + len(words)]) == words


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
