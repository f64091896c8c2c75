"""Writes the names of a phrase in another way: qualified by an alias, in backquotes, or as other columns."""

from collections.abc import Callable, Collection, Mapping

from thetastream.errors import QueryError
from thetastream.predicate.names import find_free_names, is_keyword_here
from thetastream.predicate.tokens import STRINGS, Phrase, parse


def qualify(phrase: Phrase, columns: Mapping[str, Collection[str]], fold: Callable[[str], str]) -> Phrase:
    """Write ``alias.`` before every column name of the phrase that lacks it.

    Parameters
    ----------
    phrase : Phrase
        The phrase to qualify.
    columns : mapping of alias to column names
        The columns of each stream.
    fold : callable
        ``str.casefold``, or the identity if Spark compares names case-sensitively.

    Raises
    ------
    QueryError
        AMBIGUOUS_COLUMN if more than one stream has the column.

    Examples
    --------
    >>> qualify(parse("price > b.bid"), {"a": ["price"], "b": ["bid"]}, str.casefold).text
    'a.price > b.bid'
    """
    owners: dict[str, list[str]] = {}
    for alias, names in columns.items():
        for name in names:
            owners.setdefault(fold(name), []).append(alias)
    known = {alias.casefold() for alias in columns}
    splices: list[tuple[int, str]] = []
    for n, token in find_free_names(phrase):
        found = owners.get(fold(token.name), [])
        if token.name.casefold() in known or not found or is_keyword_here(phrase, n):
            continue
        if len(found) > 1:
            choices = " or ".join(f"{alias}.{token.text}" for alias in found)
            raise QueryError(
                "AMBIGUOUS_COLUMN",
                f"column {token.name!r} is in the streams {', '.join(found)}; write {choices}",
            )
        alias = found[0] if found[0].isascii() else f"`{found[0]}`"
        splices.append((token.start, f"{alias}."))
    if not splices:
        return phrase
    text = phrase.source
    for start, prefix in reversed(splices):
        text = text[:start] + prefix + text[start:]
    return parse(text)


def quote_names(phrase: Phrase) -> Phrase:
    """Write backquotes around names that Spark accepts only in backquotes: those with letters beyond ASCII.

    >>> quote_names(parse("größe.x < f(b.`y`, 'ü')")).text
    "`größe`.x < f(b.`y`, 'ü')"
    """
    names = [
        token
        for token in phrase.tokens
        if not token.text.isascii() and token.text.isidentifier() and token.kind not in STRINGS
    ]
    if not names:
        return phrase
    text = phrase.source
    for token in reversed(names):
        text = f"{text[: token.start]}`{token.text}`{text[token.end :]}"
    return parse(text)


def relocate(phrase: Phrase, moved: Mapping[str, str], into: Callable[[str, str], str]) -> str:
    """Return the phrase's text with each ``alias.column`` of ``moved`` replaced by the result of ``into``.

    Parameters
    ----------
    phrase : Phrase
        The phrase to rewrite.
    moved : mapping of folded alias to alias
        The aliases whose columns are replaced.
    into : callable
        It maps (alias, column) to SQL.

    Raises
    ------
    QueryError
        WHOLE_STREAM if an alias appears without a column.

    Examples
    --------
    >>> relocate(parse("A.x + b.y > f(a.`z z`)"), {"a": "a"}, lambda alias, column: f"t.`{alias}__{column}`")
    't.`a__x` + b.y > f(t.`a__z z`)'
    """
    text, base = phrase.text, phrase.tokens[0].start
    splices = []
    tokens = phrase.tokens
    for n, token in find_free_names(phrase):
        alias = moved.get(token.name.casefold())
        is_dotted = n + 1 < len(tokens) and tokens[n + 1].text == "."
        if alias is None or (not is_dotted and is_keyword_here(phrase, n)):
            continue
        if n + 2 >= len(tokens) or tokens[n + 1].text != "." or tokens[n + 2].kind != "FIELD":
            raise QueryError(
                "WHOLE_STREAM",
                f"{token.text!r} stands for a whole stream in {phrase.text!r}; "
                "a join of three or more streams needs the names of its columns",
            )
        splices.append((token.start - base, tokens[n + 2].end - base, into(alias, tokens[n + 2].name)))
    for start, end, written in reversed(splices):
        text = text[:start] + written + text[end:]
    return text
