"""Finds the names in a phrase: the streams that it reads, their columns, and words that are no names.

This module looks at names only. Catalyst decides whether they resolve, and to which type.

``qualify``, ``quote_names`` and ``relocate`` write the names of a phrase in another way: qualified by an
alias, in backquotes, or as other columns.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from thetastream.conditions.tokens import OPERAND_ENDS, STRINGS, Phrase, Token, parse
from thetastream.core.errors import QueryError

# Functions whose first argument may be a unit: timestampdiff(DAY, ...).
_UNIT_FUNCTIONS = {
    *("TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "EXTRACT"),
}
_LITERALS = {"TRUE", "FALSE", "NULL"}


def find_references(phrase: Phrase, aliases: Collection[str]) -> tuple[str, ...]:
    """Return the aliases that a phrase names, in the order of ``aliases``.

    The result contains all streams that the phrase reads. It may contain more.

    >>> from thetastream.conditions.tokens import parse
    >>> find_references(parse("A.x + f(b.y.a)"), ["a", "b", "c"])
    ('a', 'b')
    """
    named = {token.name.casefold() for _, token in find_free_names(phrase)}
    return tuple(alias for alias in aliases if alias.casefold() in named)


def find_columns(phrase: Phrase, alias: str) -> set[str] | None:
    """Return the names of the columns of a stream that a phrase reads, in lower case.

    None means all columns: the alias stands for the whole stream. In the phrase, every column has its alias.

    >>> from thetastream.conditions.tokens import parse
    >>> sorted(find_columns(parse("a.x + B.y > f(b.`z z`, b.y)"), "b"))
    ['y', 'z z']
    >>> print(find_columns(parse("struct(b) = a.x"), "b"))
    None
    """
    tokens, found = phrase.tokens, set[str]()
    for n, token in find_free_names(phrase):
        if token.name.casefold() != alias.casefold():
            continue
        if n + 2 < len(tokens) and tokens[n + 1].text == "." and tokens[n + 2].kind == "FIELD":
            found.add(tokens[n + 2].name.casefold())
        elif not is_keyword_here(phrase, n):
            return None
    return found


def find_names(phrases: Iterable[Phrase], alias: str) -> set[str] | None:
    """Return all words of phrases, in lower case, so that none that may be a column is missing.

    None means all columns: the alias stands for the whole stream, or a star for all columns.

    >>> from thetastream.conditions.tokens import tokenize
    >>> find_names([tokenize("a.x + y"), tokenize("count(*)")], "a") >= {"x", "y"}
    True
    >>> print(find_names([tokenize("a.*")], "a"))
    None
    """
    names = set()
    for phrase in phrases:
        for n, token in enumerate(phrase.tokens):
            if token.kind == "STAR" and is_star(phrase, n):
                return None
            is_dotted = n + 1 < len(phrase.tokens) and phrase.tokens[n + 1].text == "."
            if token.name.casefold() == alias.casefold() and not is_dotted:
                return None  # as in to_json(r)
            names.add(token.name.casefold())
    return names


def is_star(phrase: Phrase, n: int) -> bool:
    """Whether the star at ``n`` means columns, and neither a product nor count(*)."""
    before = phrase.tokens[n - 1] if n else None
    if before is None or before.text in (",", ".") or before.keyword == "DISTINCT":
        return True
    is_count = before.text == "(" and n > 1 and phrase.tokens[n - 2].keyword == "COUNT"
    return before.text == "(" and not is_count


def find_free_names(phrase: Phrase) -> Iterator[tuple[int, Token]]:
    """Yield the tokens that may be a column or an alias.

    Fields, functions and lambda variables are left out.
    """
    tokens = phrase.tokens
    bound = _find_lambda_scopes(tokens)
    for n, token in enumerate(tokens):
        after = tokens[n + 1].text if n + 1 < len(tokens) else ""
        is_word = token.kind == "IDENTIFIER" or token.text[:1] == "_" or token.text[:1].isalnum()
        # In ANSI mode "a" may be a name. It counts as a name if a dot follows.
        is_word |= token.text[:1] == '"' and after == "."
        if not is_word or token.kind in {"FIELD", "NUMBER", *_LITERALS} or after == "(":
            continue
        if token.kind in STRINGS and token.text[:1] != '"':
            continue
        if any(start <= n < stop and token.name in names for start, stop, names in bound):
            continue
        yield n, token


def _find_lambda_scopes(tokens: tuple[Token, ...]) -> list[tuple[int, int, set[str]]]:
    """Return the token range and the parameter names of each lambda ``x -> ...`` or ``(x, y) -> ...``."""
    scopes = []
    for n, token in enumerate(tokens):
        if token.kind != "ARROW" or n == 0:
            continue
        start = n - 1
        if tokens[start].text == ")":
            while start > 0 and not (tokens[start].text == "(" and tokens[start].depth == token.depth):
                start -= 1
        stop = n + 1
        while stop < len(tokens) and tokens[stop].depth >= token.depth:
            if tokens[stop].depth == token.depth and tokens[stop].text == ",":
                break
            stop += 1
        names = {t.name for t in tokens[start:n] if t.text not in "(),"}
        scopes.append((start, stop, names))
    return scopes


def is_keyword_here(phrase: Phrase, n: int) -> bool:
    """Whether the position of the word at ``n`` makes it a unit, a type or a keyword."""
    tokens = phrase.tokens
    before = tokens[n - 1] if n else None
    after = tokens[n + 1] if n + 1 < len(tokens) else None
    if after is not None and (after.kind in STRINGS or after.text in ("=>", "->") or after.keyword == "FROM"):
        return True
    if before is None:
        return False
    if before.text == "(" and n >= 2 and tokens[n - 2].keyword in _UNIT_FUNCTIONS:
        return True
    if before.keyword in ("AS", "TO", "COLLATE") or before.text in ("::", ":"):
        return True
    # Two operands are never adjacent, so the second word is a keyword: INTERVAL 1 day, AT TIME zone.
    return before.kind in OPERAND_ENDS and before.kind != "VAR"


def qualify(phrase: Phrase, columns: Mapping[str, Collection[str]], name_key: Callable[[str], str]) -> Phrase:
    """Write ``alias.`` before every column name of the phrase that lacks it.

    Parameters
    ----------
    phrase : Phrase
        The phrase to qualify.
    columns : mapping of alias to column names
        The columns of each stream.
    name_key : callable
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
            owners.setdefault(name_key(name), []).append(alias)
    known = {alias.casefold() for alias in columns}
    splices: list[tuple[int, str]] = []
    for n, token in find_free_names(phrase):
        found = owners.get(name_key(token.name), [])
        if token.name.casefold() in known or not found or is_keyword_here(phrase, n):
            continue
        if len(found) > 1:
            choices = " or ".join(f"{alias}.{token.text}" for alias in found)
            what = f"column {token.name!r} is in the streams {', '.join(found)}"
            if len(phrase.tokens) == 1:
                equal = " = ".join(f"{alias}.{token.text}" for alias in found[:2])
                raise QueryError("AMBIGUOUS_COLUMN", f'{what}; if it is to be equal, write "{equal}"')
            raise QueryError("AMBIGUOUS_COLUMN", f"{what}; write {choices}")
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
