"""Parses FROM: inputs, which are names or subqueries, and the conditions of their joins."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from thetastream.predicate import Phrase, pointed
from thetastream.predicate.tokens import Token
from thetastream.sql.clauses import CLAUSES, UNSUPPORTED
from thetastream.sql.statement import Select, Source

_JOIN_WORDS = {"JOIN", "INNER", "CROSS"}
_REFUSED_JOINS = {
    *("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "LATERAL", "ASOF"),
    *("TABLESAMPLE", "PIVOT", "UNPIVOT"),
}
_RESERVED = {*CLAUSES, *UNSUPPORTED, *_JOIN_WORDS, *_REFUSED_JOINS, "ON", "USING", "AS", "BY"}


ReadSelect: TypeAlias = Callable[[str, Phrase], Select]
"""Parses the SELECT of a subquery."""


def read_sources(text: str, phrase: Phrase, read_select: ReadSelect) -> tuple[list[Source], list[Phrase]]:
    """Parse the inputs of a FROM clause, and the conditions behind every ON."""
    sources: list[Source] = []
    conditions: list[Phrase] = []
    for separator, part in _split_sources(text, phrase):
        at = next((n for n in part.top if _is_condition(part.tokens[n])), None)
        named = part if at is None else part.slice(0, at)
        if not named:
            raise pointed(text, separator.start, f"a stream must follow {separator.text!r}")
        source = _read_source(text, named, read_select)
        if at is not None:
            token, rest = part.tokens[at], part.slice(at + 1)
            word = token.keyword
            if separator.keyword != "JOIN":
                what = f"{word} belongs to a JOIN; write WHERE, or JOIN for the comma"
                raise pointed(text, token.start, what)
            if word == "USING":
                source = replace(source, using=_read_using(text, token, rest))
            elif rest:
                conditions.append(rest)
            else:
                raise pointed(text, token.start, "a condition must follow ON")
        sources.append(source)
    return sources, conditions


def _is_condition(token: Token) -> bool:
    return token.keyword in ("ON", "USING") and token.kind not in ("FIELD", "IDENTIFIER")


def _read_using(text: str, using: Token, phrase: Phrase) -> tuple[Token, ...]:
    """Parse the names of USING."""
    if len(phrase.tokens) < 3 or phrase.tokens[0].text != "(" or phrase.bare().tokens == phrase.tokens:
        raise pointed(text, using.start, "USING must be followed by columns in parentheses: USING (a, b)")
    names = phrase.slice(1, -1).split_at_commas()
    for name in names:
        if len(name.tokens) != 1:
            raise pointed(text, using.start, "USING must be followed by columns in parentheses: USING (a, b)")
    return tuple(name.tokens[0] for name in names)


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
                f"{token.keyword} is not supported: joins are inner joins, by comma, or by JOIN",
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


def _read_source(text: str, phrase: Phrase, read_select: ReadSelect) -> Source:
    tokens = phrase.tokens
    first = tokens[0]
    if first.text == "(":
        close = next(n for n in phrase.top if n and tokens[n].text == ")")
        alias = _read_alias(text, phrase.slice(close + 1))
        if alias is None:
            raise pointed(text, first.start, "a subquery needs a name: (SELECT ...) AS name")
        body = phrase.slice(1, close)
        if not body:
            raise pointed(text, first.start, "the subquery is empty")
        return Source(alias, "", first.start, read_select(text, body))
    end = 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name = phrase.slice(0, end)
    if first.keyword in _RESERVED or not first.may_be_name:
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
    if len(tokens) > 1 or not tokens[0].may_be_name:
        wrong = tokens[1] if len(tokens) > 1 else tokens[0]
        raise pointed(text, wrong.start, f"{wrong.text!r} is not expected behind a stream's name")
    return tokens[0].name
