"""Parses FROM: streams, which are names or subqueries, and the conditions of their joins."""

from collections.abc import Iterator

from thetastream.predicate import Phrase, pointed
from thetastream.predicate.tokens import Token
from thetastream.sql.clauses import CLAUSES, UNSUPPORTED, cut
from thetastream.sql.statement import Source

_JOIN_WORDS = {"JOIN", "INNER", "CROSS"}
_REFUSED_JOINS = {
    *("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "LATERAL", "USING", "ASOF"),
    *("TABLESAMPLE", "PIVOT", "UNPIVOT"),
}
_RESERVED = {*CLAUSES, *UNSUPPORTED, *_JOIN_WORDS, *_REFUSED_JOINS, "ON", "AS", "BY"}


def read_sources(text: str, phrase: Phrase) -> tuple[list[Source], list[Phrase]]:
    """Parse the streams of a FROM clause, and the conditions behind every ON."""
    sources: list[Source] = []
    conditions: list[Phrase] = []
    for separator, part in _split_sources(text, phrase):
        on = next(
            (n for n in part.top if part.tokens[n].keyword == "ON" and part.tokens[n].kind != "FIELD"), None
        )
        named = part if on is None else part.slice(0, on)
        if not named:
            raise pointed(text, separator.start, f"a stream must follow {separator.text!r}")
        sources.append(_read_source(text, named))
        if on is not None:
            token = part.tokens[on]
            if separator.keyword != "JOIN":
                raise pointed(text, token.start, "ON belongs to a JOIN; write WHERE, or JOIN for the comma")
            condition = part.slice(on + 1)
            if not condition:
                raise pointed(text, token.start, "a condition must follow ON")
            conditions.append(condition)
    return sources, conditions


def _split_sources(text: str, phrase: Phrase) -> Iterator[tuple[Token, Phrase]]:
    """Split a FROM clause into sources.

    Each source comes with its separator, which is a comma or JOIN. The separator of the first source is the
    first token of that source.
    """
    tokens = phrase.tokens
    start, separator = 0, tokens[0]
    for n in phrase.top:
        token = tokens[n]
        if token.kind in ("FIELD", "IDENTIFIER"):
            continue
        is_call = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if token.keyword in _REFUSED_JOINS and not (token.keyword in ("LEFT", "RIGHT") and is_call):
            raise pointed(
                text,
                token.start,
                f"{token.keyword} is not supported: joins are inner joins, by comma or by JOIN ... ON",
                "UNSUPPORTED_SQL",
            )
        if token.text == "," or token.keyword in _JOIN_WORDS:
            following = tokens[n + 1].keyword if n + 1 < len(tokens) else ""
            if token.keyword in ("INNER", "CROSS") and following != "JOIN":
                raise pointed(text, token.start, f"{token.keyword} must be followed by JOIN")
            if token.keyword == "JOIN" and n and tokens[n - 1].keyword in ("INNER", "CROSS"):
                start, separator = n + 1, token
                continue
            yield separator, phrase.slice(start, n)
            start, separator = n + 1, token
    yield separator, phrase.slice(start)


def _read_source(text: str, phrase: Phrase) -> Source:
    tokens = phrase.tokens
    first = tokens[0]
    if first.text == "(":
        close = next(n for n in phrase.top if n and tokens[n].text == ")")
        alias = _read_alias(text, phrase.slice(close + 1))
        if alias is None:
            raise pointed(text, first.start, "a subquery needs a name: (SELECT ...) AS name")
        return _read_subquery(text, phrase.slice(1, close), alias, first.start)
    end = 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name = phrase.slice(0, end)
    if first.keyword in _RESERVED or not (first.text[0].isalpha() or first.text[0] in "_`"):
        raise pointed(text, first.start, f"the name of a stream must be here, not {first.text!r}")
    alias = _read_alias(text, phrase.slice(end))
    return Source(alias or tokens[end - 1].name, name.text, first.start)


def _read_alias(text: str, phrase: Phrase) -> str | None:
    tokens = phrase.tokens
    if tokens and tokens[0].keyword == "AS":
        if len(tokens) == 1:
            raise pointed(text, tokens[0].start, "a name must follow AS")
        tokens = tokens[1:]
    if not tokens:
        return None
    if len(tokens) > 1 or not (tokens[0].text[0].isalpha() or tokens[0].text[0] in "_`"):
        wrong = tokens[1] if len(tokens) > 1 else tokens[0]
        raise pointed(text, wrong.start, f"{wrong.text!r} is not expected behind a stream's name")
    return tokens[0].name


def _read_subquery(text: str, phrase: Phrase, alias: str, start: int) -> Source:
    if not phrase:
        raise pointed(text, start, "the subquery is empty")
    clauses = cut(text, phrase)
    for word, clause in clauses.items():
        if word not in ("SELECT", "FROM", "WHERE"):
            raise pointed(
                text,
                clause.tokens[0].start,
                f"a subquery can only select and project, so it cannot have {word}",
                "UNSUPPORTED_SQL",
            )
    items = clauses["SELECT"]
    if items.tokens[0].keyword in ("ONLINE", "DISTINCT"):
        raise pointed(
            text, items.tokens[0].start, "a subquery can only select and project", "UNSUPPORTED_SQL"
        )
    found, _ = read_sources(text, clauses["FROM"])
    if len(found) > 1 or found[0].items is not None:
        raise pointed(text, found[-1].start, "a subquery reads one stream by its name", "UNSUPPORTED_SQL")
    return Source(alias, found[0].name, start, items, clauses.get("WHERE"), found[0].alias)
