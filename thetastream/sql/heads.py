"""Parses the head of a statement, which comes before its SELECT: CREATE VIEW ... AS, or INSERT INTO ...."""

from thetastream.predicate import Phrase, make_error_at
from thetastream.sql.statement import Insert, View


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
