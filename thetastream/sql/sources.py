"""Parses FROM: inputs, which are names or subqueries, and the conditions of their joins."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from thetastream.predicate import Phrase, make_error_at
from thetastream.predicate.tokens import Token
from thetastream.sql.clauses import CLAUSES, UNSUPPORTED
from thetastream.sql.statement import Select, Source

_KINDS = {
    "JOIN": "inner",
    "INNER JOIN": "inner",
    "CROSS JOIN": "inner",
    "LEFT JOIN": "left",
    "LEFT OUTER JOIN": "left",
    "RIGHT JOIN": "right",
    "RIGHT OUTER JOIN": "right",
    "FULL JOIN": "full",
    "FULL OUTER JOIN": "full",
    "SEMI JOIN": "semi",
    "LEFT SEMI JOIN": "semi",
    "ANTI JOIN": "anti",
    "LEFT ANTI JOIN": "anti",
}
"""The kind of a join by the words that stand before its second input."""
_JOIN_WORDS = {word for words in _KINDS for word in words.split()}
_REFUSED_JOINS = {"NATURAL", "LATERAL", "ASOF", "TABLESAMPLE", "PIVOT", "UNPIVOT"}
_RESERVED = {*CLAUSES, *UNSUPPORTED, *_JOIN_WORDS, *_REFUSED_JOINS, "ON", "USING", "AS", "BY"}


ReadSelect: TypeAlias = Callable[[str, Phrase], Select]
"""Parses the SELECT of a subquery."""


def read_sources(text: str, phrase: Phrase, read_select: ReadSelect) -> tuple[list[Source], list[Phrase]]:
    """Parse the inputs of a FROM clause, and the conditions behind every ON."""
    sources: list[Source] = []
    conditions: list[Phrase] = []
    for separator, how, part in _split_sources(text, phrase):
        at = next((n for n in part.top if _is_condition(part.tokens[n])), None)
        named = part if at is None else part.slice(0, at)
        if not named:
            raise make_error_at(text, separator.start, f"a stream must follow {separator.text!r}")
        source = replace(_read_source(text, named, read_select), how=how)
        if how != "inner":
            _check_kind(text, separator, how, len(sources), None if at is None else part.tokens[at])
        if at is not None:
            token, rest = part.tokens[at], part.slice(at + 1)
            word = token.keyword
            if separator.keyword != "JOIN":
                what = f"{word} belongs to a JOIN; write WHERE, or JOIN for the comma"
                raise make_error_at(text, token.start, what)
            if word == "USING":
                source = replace(source, using=_read_using(text, token, rest))
            elif rest:
                conditions.append(rest)
            else:
                raise make_error_at(text, token.start, "a condition must follow ON")
        sources.append(source)
    if len(sources) > 2:
        for source in sources:
            if source.how != "inner":
                _refuse_more(text, source.start, source.how)
    return sources, conditions


def _check_kind(text: str, join: Token, how: str, n_before: int, condition: Token | None) -> None:
    """Check that an outer, semi or anti join has two inputs and a condition."""
    if n_before > 1:
        _refuse_more(text, join.start, how)
    if condition is None:
        raise make_error_at(text, join.start, f"ON must follow a {how.upper()} JOIN")
    if condition.keyword == "USING" and how in ("right", "full"):
        what = f"USING has no column that is never NULL in a {how.upper()} JOIN; write ON"
        raise make_error_at(text, condition.start, what, "UNSUPPORTED_SQL")


def _refuse_more(text: str, start: int, how: str) -> None:
    what = (
        f"a {how.upper()} JOIN has two inputs; put the other join into a subquery that also selects "
        "result_time"
    )
    raise make_error_at(text, start, what, "UNSUPPORTED_SQL")


def _is_condition(token: Token) -> bool:
    return token.keyword in ("ON", "USING") and token.kind not in ("FIELD", "IDENTIFIER")


def _read_using(text: str, using: Token, phrase: Phrase) -> tuple[Token, ...]:
    """Parse the names of USING."""
    if len(phrase.tokens) < 3 or phrase.tokens[0].text != "(" or phrase.bare().tokens == phrase.tokens:
        raise make_error_at(
            text, using.start, "USING must be followed by columns in parentheses: USING (a, b)"
        )
    names = phrase.slice(1, -1).split_at_commas()
    for name in names:
        if len(name.tokens) != 1:
            raise make_error_at(
                text, using.start, "USING must be followed by columns in parentheses: USING (a, b)"
            )
    return tuple(name.tokens[0] for name in names)


def _split_sources(text: str, phrase: Phrase) -> Iterator[tuple[Token, str, Phrase]]:
    """Split a FROM clause into sources.

    Each source comes with its separator, which is a comma or JOIN, and the kind of its join. The separator of
    the first source is the first token of that source.
    """
    tokens = phrase.tokens
    start, separator, how = 0, tokens[0], "inner"
    for n in phrase.top:
        token = tokens[n]
        if n < start:
            continue  # a word of a join that is read already
        if token.kind in ("FIELD", "IDENTIFIER"):
            continue
        is_call = n + 1 < len(tokens) and tokens[n + 1].text == "("
        if token.keyword in _REFUSED_JOINS:
            what = (
                f"{token.keyword} is not supported: joins are INNER, CROSS, LEFT, RIGHT, FULL, SEMI or ANTI"
            )
            raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")
        if token.keyword in ("LEFT", "RIGHT") and is_call:
            continue
        if token.text == ",":
            yield separator, how, phrase.slice(start, n)
            start, separator, how = n + 1, token, "inner"
        elif token.keyword in _JOIN_WORDS:
            end = n + _count_join_words(text, tokens[n:])
            yield separator, how, phrase.slice(start, n)
            start, separator, how = end, tokens[end - 1], _KINDS[_name_join(tokens[n:end])]
    yield separator, how, phrase.slice(start)


def _count_join_words(text: str, tokens: Sequence[Token]) -> int:
    """Count the words from the first token on that name a kind of join."""
    for n in (1, 2, 3):
        if _name_join(tokens[:n]) in _KINDS:
            return n
    raise make_error_at(text, tokens[0].start, f"{tokens[0].keyword} must be followed by JOIN")


def _name_join(tokens: Sequence[Token]) -> str:
    return " ".join(token.keyword for token in tokens)


def _read_source(text: str, phrase: Phrase, read_select: ReadSelect) -> Source:
    tokens = phrase.tokens
    first = tokens[0]
    if first.text == "(":
        close = next(n for n in phrase.top if n and tokens[n].text == ")")
        alias = _read_alias(text, phrase.slice(close + 1))
        if alias is None:
            raise make_error_at(text, first.start, "a subquery needs a name: (SELECT ...) AS name")
        body = phrase.slice(1, close)
        if not body:
            raise make_error_at(text, first.start, "the subquery is empty")
        return Source(alias, "", first.start, read_select(text, body))
    end = 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name = phrase.slice(0, end)
    if first.keyword in _RESERVED or not first.may_be_name:
        raise make_error_at(text, first.start, f"the name of a stream must be here, not {first.text!r}")
    alias = _read_alias(text, phrase.slice(end))
    return Source(alias or tokens[end - 1].name, name.text, first.start)


def _read_alias(text: str, phrase: Phrase) -> str | None:
    tokens = phrase.tokens
    if tokens and tokens[0].keyword == "AS":
        if len(tokens) == 1:
            raise make_error_at(text, tokens[0].start, "a name must follow AS")
        tokens = tokens[1:]
    if not tokens:
        return None
    if len(tokens) > 1 or not tokens[0].may_be_name:
        wrong = tokens[1] if len(tokens) > 1 else tokens[0]
        raise make_error_at(text, wrong.start, f"{wrong.text!r} is not expected behind a stream's name")
    return tokens[0].name
