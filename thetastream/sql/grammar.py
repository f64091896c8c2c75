"""Text to statement. Clauses and sources are read here; expressions are left to Catalyst.

    statement = [EXPLAIN] SELECT ONLINE [DISTINCT] items FROM sources
                [WHERE condition] [WITHIN window] [GROUP BY keys] [HAVING condition]
    sources   = source { "," source | [INNER | CROSS] JOIN source [ON condition] }
    source    = name [[AS] alias] | "(" SELECT items FROM name [[AS] alias] [WHERE condition] ")" [AS] alias
    window    = interval | number ROWS | alias interval { "," alias interval }

The dialect is Spark SQL plus the words ONLINE and WITHIN. It is read over sqlglot's tokens, not its
syntax tree: a tree would have to be written as SQL again, and Catalyst must get what the user wrote.
"""

import re
from collections.abc import Iterator

from thetastream.errors import QueryError
from thetastream.predicate import Phrase, pointed, tokenize
from thetastream.predicate.tokens import Token
from thetastream.sql.statement import Source, Statement
from thetastream.windows import Duration, Rows

_CLAUSES = ("SELECT", "FROM", "WHERE", "WITHIN", "GROUP BY", "HAVING")
_UNSUPPORTED = {
    "ORDER BY": "an unbounded result has no order; sort behind a window, or in the sink",
    "SORT BY": "an unbounded result has no order; sort behind a window, or in the sink",
    "LIMIT": "a stream has no end to cut at; limit in the sink",
    "OFFSET": "a stream has no end to cut at; limit in the sink",
    "UNION": "union the DataFrames of two statements instead",
    "INTERSECT": "write it as a join",
    "EXCEPT": "a stream cannot take back what it has given out",
    "QUALIFY": "window functions need an end of the stream",
    "WINDOW": "window functions need an end of the stream",
    "CLUSTER BY": "partitioning is the model's matter",
    "DISTRIBUTE BY": "partitioning is the model's matter",
}
_JOIN_WORDS = {"JOIN", "INNER", "CROSS"}
_REFUSED_JOINS = {
    *("LEFT", "RIGHT", "FULL", "OUTER", "SEMI", "ANTI", "NATURAL", "LATERAL", "USING", "ASOF"),
    *("TABLESAMPLE", "PIVOT", "UNPIVOT"),
}
_RESERVED = {*_CLAUSES, *_UNSUPPORTED, *_JOIN_WORDS, *_REFUSED_JOINS, "ON", "AS", "BY"}
_OPERATORS = {
    *(
        "EQ",
        "NEQ",
        "LT",
        "LTE",
        "GT",
        "GTE",
        "NULLSAFE_EQ",
        "PLUS",
        "DASH",
        "STAR",
        "SLASH",
        "PERCENT",
        "MOD",
    ),
    *("AND", "OR", "NOT", "COMMA", "DOT", "AMP", "PIPE", "CARET", "TILDE", "DPIPE", "BETWEEN", "LIKE", "IN"),
    *("DIV", "IS"),
}


def parse_statement(text: str) -> Statement:
    """The clauses of a ``SELECT ONLINE``.

    Raises
    ------
    QueryError
        SYNTAX or UNSUPPORTED_SQL, with line, column, and a caret under the place.

    Examples
    --------
    >>> found = parse_statement("SELECT ONLINE R.a, S.b FROM R, S WHERE R.a > S.b WITHIN 10 minutes")
    >>> [source.alias for source in found.sources], found.conditions[0].text, found.within
    (['R', 'S'], 'R.a > S.b', '10 minutes')
    """
    # sqlglot takes EXPLAIN for a command and reads no further.
    explain = re.match(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*EXPLAIN\b", text, re.IGNORECASE | re.DOTALL)
    read = text if explain is None else " " * explain.end() + text[explain.end() :]
    whole = tokenize(read)
    if whole and whole.tokens[-1].text == ";":
        whole = whole.slice(0, -1)
    if not whole:
        raise pointed(text, len(text), "a statement is due: SELECT ONLINE ... FROM ... WHERE ...")
    clauses = _clauses(text, whole)
    items = clauses["SELECT"]
    if not items or items.tokens[0].keyword != "ONLINE":
        raise _error(text, items, whole, "SELECT must be followed by ONLINE")
    items = items.slice(1)
    is_distinct = bool(items) and items.tokens[0].keyword == "DISTINCT"
    if is_distinct:
        items = items.slice(1)
    if not items:
        raise _error(text, items, whole, "the select list is empty")
    sources, conditions = _sources(text, clauses["FROM"])
    if len(sources) < 2:
        raise pointed(
            text, sources[0].start, "a join takes two streams or more, here is one", "UNSUPPORTED_SQL"
        )
    if "WHERE" in clauses:
        conditions.append(clauses["WHERE"])
    aliases = {source.alias.casefold(): source.alias for source in sources}
    if len(aliases) < len(sources):
        seen: set[str] = set()
        for source in sources:
            if source.alias.casefold() in seen:
                raise pointed(
                    text,
                    source.start,
                    f"the alias {source.alias!r} is taken; name this one with AS",
                    "DUPLICATE_ALIAS",
                )
            seen.add(source.alias.casefold())
    within = _within(text, clauses["WITHIN"], aliases) if "WITHIN" in clauses else None
    return Statement(
        text,
        items,
        tuple(sources),
        tuple(conditions),
        within,
        clauses.get("GROUP BY"),
        clauses.get("HAVING"),
        is_distinct,
        explain is not None,
    )


# Clauses


def _clauses(text: str, phrase: Phrase) -> dict[str, Phrase]:
    """Clause by its first word; that word is left off."""
    starts = list(_clause_starts(text, phrase))
    first = phrase.tokens[0]
    if not starts or starts[0][1] != 0 or starts[0][0] != "SELECT":
        raise pointed(text, first.start, f"a statement starts with SELECT ONLINE, not {first.text!r}")
    clauses: dict[str, Phrase] = {}
    for (word, start), following in zip(starts, [*starts[1:], ("", len(phrase.tokens))], strict=True):
        token = phrase.tokens[start]
        if word in clauses:
            raise pointed(text, token.start, f"{word} is there twice")
        late = [other for other in clauses if "WITHIN" not in (word, other) and _rank(other) > _rank(word)]
        if late:
            raise pointed(text, token.start, f"{word} must stand before {late[0]}")
        clauses[word] = phrase.slice(start + 1, following[1])
        if not clauses[word]:
            raise pointed(text, token.start, f"nothing follows {word}")
        last = clauses[word].tokens[-1]
        if last.kind in _OPERATORS - {"STAR"}:
            raise pointed(text, last.start, f"nothing follows {last.text!r}")
    if "FROM" not in clauses:
        raise pointed(text, phrase.tokens[-1].end, "FROM is missing")
    return clauses


def _rank(word: str) -> int:
    return _CLAUSES.index(word)


def _clause_starts(text: str, phrase: Phrase) -> Iterator[tuple[str, int]]:
    tokens = phrase.tokens
    for n in phrase.top:
        token, before = tokens[n], tokens[n - 1] if n else None
        following = tokens[n + 1] if n + 1 < len(tokens) else None
        if token.kind in ("FIELD", "IDENTIFIER", "STRING") or (before is not None and before.keyword == "AS"):
            continue
        word = " ".join(token.keyword.split())
        # A word behind an operator is an operand: WHERE a.x > within.
        is_operand = before is not None and before.kind in _OPERATORS
        if word == "FROM" and before is not None and before.keyword == "DISTINCT" and n > 2:
            continue  # IS DISTINCT FROM
        if word == "WITHIN" and following is not None and following.keyword.startswith("GROUP"):
            continue  # percentile_cont(0.5) WITHIN GROUP (ORDER BY ...)
        if word in _UNSUPPORTED and n and not is_operand and _is_clause(word, following):
            raise pointed(
                text, token.start, f"{word} cannot be answered: {_UNSUPPORTED[word]}", "UNSUPPORTED_SQL"
            )
        if (
            word in _CLAUSES
            and (n == 0 or not is_operand or word == "FROM")
            and not _is_name(word, following)
        ):
            yield word, n


def _is_clause(word: str, following: Token | None) -> bool:
    """Whether an unreserved word starts a clause, as opposed to being a column."""
    if word.endswith(" BY") or word in ("UNION", "INTERSECT", "EXCEPT"):
        return True
    if word in ("QUALIFY", "WINDOW"):  # window(...) is a function
        return following is not None and following.kind in ("VAR", "IDENTIFIER")
    return following is not None and following.kind in ("NUMBER", "ALL")


def _is_name(word: str, following: Token | None) -> bool:
    if word == "WITHIN":
        return following is None or following.kind in _OPERATORS or following.text in (")", "]", ".")
    return following is not None and following.text == "."


# FROM


def _sources(text: str, phrase: Phrase) -> tuple[list[Source], list[Phrase]]:
    sources: list[Source] = []
    conditions: list[Phrase] = []
    for separator, part in _parts(text, phrase):
        on = next(
            (n for n in part.top if part.tokens[n].keyword == "ON" and part.tokens[n].kind != "FIELD"), None
        )
        named = part if on is None else part.slice(0, on)
        if not named:
            raise pointed(text, separator.start, f"a stream must follow {separator.text!r}")
        sources.append(_source(text, named))
        if on is not None:
            token = part.tokens[on]
            if separator.keyword != "JOIN":
                raise pointed(text, token.start, "ON belongs to a JOIN; write WHERE, or JOIN for the comma")
            condition = part.slice(on + 1)
            if not condition:
                raise pointed(text, token.start, "a condition must follow ON")
            conditions.append(condition)
    return sources, conditions


def _parts(text: str, phrase: Phrase) -> Iterator[tuple[Token, Phrase]]:
    """Sources with the token before them: a comma, JOIN, or, for the first, its own first token."""
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


def _source(text: str, phrase: Phrase) -> Source:
    tokens = phrase.tokens
    first = tokens[0]
    if first.text == "(":
        close = next(n for n in phrase.top if n and tokens[n].text == ")")
        alias = _alias(text, phrase.slice(close + 1))
        if alias is None:
            raise pointed(text, first.start, "a subquery needs a name: (SELECT ...) AS name")
        return _subquery(text, phrase.slice(1, close), alias, first.start)
    end = 1
    while end + 1 < len(tokens) and tokens[end].text == ".":
        end += 2
    name = phrase.slice(0, end)
    if first.keyword in _RESERVED or not (first.text[0].isalpha() or first.text[0] in "_`"):
        raise pointed(text, first.start, f"a stream's name is due here, not {first.text!r}")
    alias = _alias(text, phrase.slice(end))
    return Source(alias or tokens[end - 1].name, name.text, first.start)


def _alias(text: str, phrase: Phrase) -> str | None:
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


def _subquery(text: str, phrase: Phrase, alias: str, start: int) -> Source:
    if not phrase:
        raise pointed(text, start, "the subquery is empty")
    clauses = _clauses(text, phrase)
    for word, clause in clauses.items():
        if word not in ("SELECT", "FROM", "WHERE"):
            raise pointed(
                text,
                clause.tokens[0].start,
                f"a subquery selects and projects, {word} does more",
                "UNSUPPORTED_SQL",
            )
    items = clauses["SELECT"]
    if items.tokens[0].keyword in ("ONLINE", "DISTINCT"):
        raise pointed(
            text, items.tokens[0].start, "a subquery selects and projects one stream", "UNSUPPORTED_SQL"
        )
    found, _ = _sources(text, clauses["FROM"])
    if len(found) > 1 or found[0].items is not None:
        raise pointed(text, found[-1].start, "a subquery reads one stream by its name", "UNSUPPORTED_SQL")
    return Source(alias, found[0].name, start, items, clauses.get("WHERE"), found[0].alias)


# WITHIN


def _within(text: str, phrase: Phrase, aliases: dict[str, str]) -> Duration | dict[str, Duration] | Rows:
    parts = _at_commas(phrase)
    spans: dict[str, Duration] = {}
    for part in parts:
        if not part:
            raise pointed(text, phrase.tokens[0].start, "an interval is missing between commas")
        first = part.tokens[0]
        is_named = (first.text[0].isalpha() and first.keyword != "INTERVAL") or first.text[0] in "_`"
        if is_named and first.name.casefold() not in aliases:
            raise pointed(
                text,
                first.start,
                f"WITHIN names {first.name!r}, which is not one of {', '.join(aliases.values())}",
                "UNKNOWN_ALIAS",
            )
        span = part.slice(1) if is_named else part
        if not span:
            raise pointed(text, first.start, f"an interval must follow {first.text!r}")
        if span.tokens[-1].keyword == "ROWS":
            return _rows(text, phrase, span)
        if not is_named and len(parts) > 1:
            raise pointed(text, first.start, "several windows need the name of a stream each")
        if is_named and aliases[first.name.casefold()] in spans:
            raise pointed(text, first.start, f"{first.text!r} has two windows")
        duration = _interval(span)
        if not is_named:
            return duration
        spans[aliases[first.name.casefold()]] = duration
    return spans


def _rows(text: str, phrase: Phrase, span: Phrase) -> Rows:
    count = span.tokens[0]
    if len(span.tokens) != 2 or not count.text.isdecimal() or span.tokens != phrase.tokens:
        raise pointed(text, phrase.tokens[0].start, "a count window is a number and ROWS, as in 1000 ROWS")
    return Rows(int(count.text))


def _interval(span: Phrase) -> str:
    """``INTERVAL '10' MINUTES`` and ``10 minutes`` alike as what withWatermark reads."""
    words = span.tokens[1:] if span.tokens[0].keyword == "INTERVAL" else span.tokens
    return " ".join(token.text.strip("'\"") for token in words)


def _at_commas(phrase: Phrase) -> list[Phrase]:
    commas = [n for n in phrase.top if phrase.tokens[n].text == ","]
    starts = [0, *(n + 1 for n in commas)]
    return [phrase.slice(start, stop) for start, stop in zip(starts, [*commas, None], strict=True)]


def _error(text: str, part: Phrase, whole: Phrase, what: str) -> QueryError:
    return pointed(text, (part or whole).tokens[0].start, what)
