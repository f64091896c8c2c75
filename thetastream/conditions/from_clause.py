"""Parses FROM: inputs, which are names or subqueries, and the conditions of their joins.

``FOR SYSTEM_TIME AS OF`` joins with the version of a row that held at a time. It is read as an as-of join:

    r JOIN s FOR SYSTEM_TIME AS OF r.t AS v ON r.k = v.k
    r ASOF JOIN s AS v ON r.k = v.k AND r.t >= v.t         where t is the event time of s

It is Flink's temporal join. A row of ``s`` is a version of its key, which holds from its event time on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from thetastream.conditions.clauses import CLAUSES, UNSUPPORTED
from thetastream.conditions.nearest import (
    AS_OF,
    cut_match,
    cut_ranking,
    read_as_of,
    read_lateral,
    read_nearest,
    refuse_lateral_view,
)
from thetastream.conditions.statement import Select, Source
from thetastream.conditions.tokens import Phrase, Token, make_error_at
from thetastream.core.how import AsOf

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
    "ASOF JOIN": "asof",
    "ASOF LEFT JOIN": "asof left",
    "ASOF LEFT OUTER JOIN": "asof left",
    "LEFT ASOF JOIN": "asof left",
    "LEFT OUTER ASOF JOIN": "asof left",
    "ASOF INNER JOIN": "asof inner",
    "INNER ASOF JOIN": "asof inner",
}
"""The kind of a join by the words that stand before its second input."""
_JOIN_WORDS = {word for words in _KINDS for word in words.split()}
_REFUSED_AS_OF = {
    "RIGHT": "ASOF LEFT JOIN with the inputs in the other order",
    "FULL": "ASOF LEFT JOIN, and an ANTI JOIN for the rows that are nearest to none",
    "SEMI": "SEMI JOIN with the same ON: a row has a nearest partner if it has any",
    "ANTI": "ANTI JOIN with the same ON: a row has no nearest partner if it has none",
}
_REFUSED_JOINS = {"NATURAL", "TABLESAMPLE", "PIVOT", "UNPIVOT"}
_RESERVED = {*CLAUSES, *UNSUPPORTED, *_JOIN_WORDS, *_REFUSED_JOINS, "LATERAL", "ON", "USING", "AS", "BY"}

ReadSelect: TypeAlias = Callable[[str, Phrase], Select]
"""Parses the SELECT of a subquery."""
_KEEPS_UNMATCHED = {"inner": False, "left": True}


def read_sources(text: str, phrase: Phrase, read_select: ReadSelect) -> tuple[list[Source], list[Phrase]]:
    """Parse the inputs of a FROM clause, and the conditions behind every ON."""
    parts = list(_split_sources(text, phrase))
    sources: list[Source] = []
    for separator, kind, part in parts:
        sources.append(_read_join(text, separator, kind, part, sources, read_select))
    if len(sources) > 2 and any(source.how != "inner" for source in sources):
        _check_nested(text, [separator for separator, _, _ in parts[1:]], sources)
    return sources, [phrase for source in sources for phrase in source.asked]


def _read_join(
    text: str, separator: Token, kind: str, part: Phrase, before: Sequence[Source], read_select: ReadSelect
) -> Source:
    """Parse one input, and how it joins the inputs before it."""
    # 1. The input itself.
    at = next((n for n in part.top if _is_condition(part.tokens[n])), None)
    named, match = cut_match(part if at is None else part.slice(0, at))
    named, version = cut_version(text, named)
    named, ranking = cut_ranking(named)
    if not named:
        raise make_error_at(text, separator.start, f"a stream must follow {separator.text!r}")
    if named.tokens[0].keyword == "LATERAL":
        source = read_lateral(text, kind, named.slice(1), before, read_select)
    else:
        source = _read_source(text, named, read_select)
    # 2. ON or USING.
    token = None if at is None else part.tokens[at]
    if token is not None and separator.keyword != "JOIN":
        what = f"{token.keyword} belongs to a JOIN; write WHERE, or JOIN for the comma"
        raise make_error_at(text, token.start, what)
    if token is not None and at is not None:
        rest = part.slice(at + 1)
        if token.keyword == "USING":
            source = replace(source, using=_read_using(text, token, rest))
        elif rest:
            source = replace(source, on=rest)
        else:
            raise make_error_at(text, token.start, "a condition must follow ON")
    # 3. The kind of the join.
    if source.subquery is not None:
        return source
    if ranking:
        return replace(source, how=read_nearest(text, kind, ranking))
    aliases = [*(other.alias for other in before), source.alias]
    if version:
        return read_version(text, separator, kind, source, version)
    if match:
        source = replace(source, match=match)
        if kind not in AS_OF:
            what = f"MATCH_CONDITION belongs to ASOF JOIN, not to {_spell(kind)}; write ON"
            raise make_error_at(text, match.tokens[0].start, what, "UNSUPPORTED_SQL")
        return replace(source, how=read_as_of(text, separator, kind, match, aliases, match))
    if kind in AS_OF and source.using and len(before) == 1:
        time = source.using[-1].text
        later, earlier = f"{before[0].alias}.{time}", f"{source.alias}.{time}"
        by, written = f"({later}) - ({earlier})", f"{later} >= {earlier}"
        how = AsOf(1, by, AS_OF[kind], written=written)
        return replace(source, how=how, ends_with_time=True)
    if kind in AS_OF and source.on is not None:
        return replace(source, how=read_as_of(text, separator, kind, source.on, aliases))
    if kind != "inner":
        _check_kind(text, separator, kind, token)
    return replace(source, how=kind)


def _check_kind(text: str, join: Token, kind: str, condition: Token | None) -> None:
    """Check that an outer, semi or anti join has a condition."""
    if condition is None or kind in AS_OF:
        raise make_error_at(text, join.start, f"ON must follow {_spell(kind)}")
    if condition.keyword == "USING" and kind in ("right", "full"):
        what = f"USING has no column that is never NULL in {_spell(kind)}; write ON"
        raise make_error_at(text, condition.start, what, "UNSUPPORTED_SQL")


def _check_nested(text: str, separators: Sequence[Token], sources: Sequence[Source]) -> None:
    """Check joins in a row of which some are not inner: each is JOIN ... ON."""
    for separator, source in zip(separators, sources[1:], strict=True):
        has_condition = source.asked or source.version or source.subquery
        if separator.keyword != "JOIN" or source.using or not has_condition:
            what = "beside an outer, semi, anti or nearest join, each further input is JOIN ... ON"
            if source.using:
                name = source.using[0].text
                what += f"; write ON {sources[0].alias}.{name} = {source.alias}.{name}"
            raise make_error_at(text, separator.start, what, "UNSUPPORTED_SQL")


def _spell(kind: str) -> str:
    article = "an" if kind[0] == "a" else "a"
    return f"{article} {kind.upper()} JOIN"


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
        if token.keyword == "LATERAL" and not is_call:
            raise refuse_lateral_view(text, tokens[n:])
        if token.keyword in _REFUSED_JOINS:
            what = (
                f"{token.keyword} is not supported: joins are INNER, CROSS, LEFT, RIGHT, FULL, SEMI, "
                "ANTI or ASOF"
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
    for n in (1, 2, 3, 4):
        if _name_join(tokens[:n]) in _KINDS:
            return n
    words = {token.keyword for token in tokens[:3]}
    for kind, hint in _REFUSED_AS_OF.items():
        if {"ASOF", kind} <= words:
            what = f"ASOF answers each row of the first input; write {hint}"
            raise make_error_at(text, tokens[0].start, what, "UNSUPPORTED_SQL")
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


def cut_version(text: str, phrase: Phrase) -> tuple[Phrase, Phrase]:
    """Cut ``FOR SYSTEM_TIME AS OF time`` out of an input of FROM; the second part is the time.

    >>> from thetastream.conditions import tokenize
    >>> named, time = cut_version("", tokenize("s FOR SYSTEM_TIME AS OF r.t AS v"))
    >>> [token.text for token in named], time.text
    (['s', 'AS', 'v'], 'r.t')
    """
    words = [token.keyword if token.kind not in ("FIELD", "IDENTIFIER") else "" for token in phrase.tokens]
    for n in phrase.top[1:]:
        if words[n : n + 4] == ["FOR", "SYSTEM_TIME", "AS", "OF"] and n + 4 < len(words):
            time, alias = phrase.slice(n + 4), phrase.slice(0, 0)
            has_word = words[-2] == "AS" or (
                phrase.tokens[-2].kind == "FIELD" and phrase.tokens[-1].kind == "VAR"
            )
            if has_word:
                end = -2 if words[-2] == "AS" else -1
                time, alias = phrase.slice(n + 4, end), phrase.slice(end)
            return Phrase(phrase.source, (*phrase.tokens[:n], *alias.tokens)), time
        if words[n] in ("VERSION", "TIMESTAMP") and words[n + 1 : n + 3] == ["AS", "OF"]:
            what = "a version of a table is given as a DataFrame: streams={name: spark.read...}"
            raise make_error_at(text, phrase.tokens[n].start, what, "UNSUPPORTED_SQL")
    return phrase, phrase.slice(0, 0)


def read_version(text: str, join: Token, kind: str, source: Source, version: Phrase) -> Source:
    """Read a join with a version. Its event time is not known yet."""
    if join.keyword != "JOIN" or kind not in _KEEPS_UNMATCHED or source.on is None:
        what = "FOR SYSTEM_TIME stands in [LEFT] JOIN stream FOR SYSTEM_TIME AS OF time AS name ON condition"
        raise make_error_at(text, version.tokens[0].start, what, "UNSUPPORTED_SQL")
    return replace(source, how=AsOf(1, version.text, _KEEPS_UNMATCHED[kind]), version=version)
