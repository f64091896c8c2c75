"""Finds the names in a phrase: the streams that it reads, their columns, and words that are no names.

This module looks at names only. Catalyst decides whether they resolve, and to which type.
"""

from collections.abc import Collection, Iterator

from thetastream.predicate.tokens import OPERAND_ENDS, STRINGS, Phrase, Token

# Functions whose first argument may be a unit: timestampdiff(DAY, ...).
_UNIT_FUNCTIONS = {
    *("TIMESTAMPADD", "TIMESTAMPDIFF", "DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "EXTRACT"),
}
_LITERALS = {"TRUE", "FALSE", "NULL"}


def find_references(phrase: Phrase, aliases: Collection[str]) -> tuple[str, ...]:
    """Return the aliases that a phrase names, in the order of ``aliases``.

    The result contains all streams that the phrase reads. It may contain more.

    >>> from thetastream.predicate.tokens import parse
    >>> find_references(parse("A.x + f(b.y.a)"), ["a", "b", "c"])
    ('a', 'b')
    """
    named = {token.name.casefold() for _, token in find_free_names(phrase)}
    return tuple(alias for alias in aliases if alias.casefold() in named)


def find_columns(phrase: Phrase, alias: str) -> set[str] | None:
    """Return the names of the columns of a stream that a phrase reads, in lower case.

    None means all columns: the alias stands for the whole stream. In the phrase, every column has its alias.

    >>> from thetastream.predicate.tokens import parse
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
