"""Cuts a statement into its clauses, at the words with which they begin, and reads the clauses of a SELECT.

Every expression is a slice of the user's text. Some parts of a SELECT have no answer over unbounded streams:
they need the end of their input, as a window function does (``find_endless``).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from thetastream.conditions.tokens import OPERAND_ENDS, Phrase, Token, make_error_at, tokenize
from thetastream.core.errors import QueryError

TAIL = ("ORDER BY", "LIMIT", "OFFSET")
"""Clauses that only batch inputs can have."""
CLAUSES = ("SELECT", "FROM", "WHERE", "WITHIN", "GROUP BY", "HAVING", *TAIL)
ENDLESS = {
    "ORDER BY": "an unbounded result has no order; sort behind a window, or in the sink",
    "LIMIT": "a stream has no end to cut at; limit in the sink",
    "OFFSET": "a stream has no end to cut at; limit in the sink",
}
"""The reason why streams cannot have a clause of the tail."""
UNSUPPORTED = {
    "SORT BY": "use ORDER BY, over batch inputs",
    "UNION": "union the DataFrames of two statements instead",
    "INTERSECT": "write it as a join",
    "EXCEPT": "a stream cannot take back what it has given out",
    "QUALIFY": "window functions need an end of the stream",
    "WINDOW": "window functions need an end of the stream",
    "CLUSTER BY": "partitioning is the model's matter",
    "DISTRIBUTE BY": "partitioning is the model's matter",
}
_OPERATORS = {
    *("EQ", "NEQ", "LT", "LTE", "GT", "GTE", "NULLSAFE_EQ"),
    *("PLUS", "DASH", "STAR", "SLASH", "PERCENT", "MOD", "DIV", "IS"),
    *("AND", "OR", "NOT", "COMMA", "DOT", "AMP", "PIPE", "CARET", "TILDE", "DPIPE", "BETWEEN", "LIKE", "IN"),
}
_RANKS = {"ROW_NUMBER", "RANK"}


def cut_clauses(text: str, phrase: Phrase) -> dict[str, Phrase]:
    """Cut a SELECT into clauses: first word of the clause -> the rest of the clause.

    Clauses of the tail begin with their word.
    """
    starts = list(_find_clauses(text, phrase))
    first = phrase.tokens[0]
    if not starts or starts[0][1] != 0 or starts[0][0] != "SELECT":
        raise make_error_at(text, first.start, f"a statement starts with SELECT, not {first.text!r}")
    clauses: dict[str, Phrase] = {}
    for (word, start), following in zip(starts, [*starts[1:], ("", len(phrase.tokens))], strict=True):
        token = phrase.tokens[start]
        if word in clauses:
            raise make_error_at(text, token.start, f"{word} is there twice")
        late = [other for other in clauses if "WITHIN" not in (word, other) and _rank(other) > _rank(word)]
        if late:
            raise make_error_at(text, token.start, f"{word} must stand before {late[0]}")
        rest = phrase.slice(start + 1, following[1])
        if not rest:
            raise make_error_at(text, token.start, f"nothing follows {word}")
        clauses[word] = phrase.slice(start, following[1]) if word in TAIL else rest
        last = clauses[word].tokens[-1]
        if last.kind in _OPERATORS - {"STAR"}:
            raise make_error_at(text, last.start, f"nothing follows {last.text!r}")
    if "FROM" not in clauses:
        raise make_error_at(text, phrase.tokens[-1].end, "FROM is missing")
    return clauses


def check_expression(phrase: Phrase) -> None:
    """Raise if a clause begins inside a text that should be one expression, as in ``count(*) FROM r``.

    Raises
    ------
    QueryError
        SYNTAX, or UNSUPPORTED_SQL for a clause that no statement may have.
    """
    for word, n in _find_clauses(phrase.source, phrase):
        token = phrase.tokens[n]
        raise make_error_at(
            phrase.source, token.start, f"{word} begins a clause, but one expression is expected"
        )


def _rank(word: str) -> int:
    return CLAUSES.index(word)


def _find_clauses(text: str, phrase: Phrase) -> Iterator[tuple[str, int]]:
    tokens = phrase.tokens
    for n in phrase.top:
        token, before = tokens[n], tokens[n - 1] if n else None
        following = tokens[n + 1] if n + 1 < len(tokens) else None
        if token.kind in ("FIELD", "IDENTIFIER", "STRING") or (before is not None and before.keyword == "AS"):
            continue
        word = " ".join(token.keyword.split())
        # A word behind an operator is an operand, as in WHERE a.x > within.
        is_operand = before is not None and before.kind in _OPERATORS and not _is_window(tokens, n)
        if word == "FROM" and before is not None and before.keyword == "DISTINCT" and n > 2:
            continue  # IS DISTINCT FROM
        if word == "WITHIN" and following is not None and following.keyword.startswith("GROUP"):
            continue  # percentile_cont(0.5) WITHIN GROUP (ORDER BY ...)
        if word in UNSUPPORTED and n and not is_operand and _is_clause(word, following):
            what = f"{word} cannot be answered: {UNSUPPORTED[word]}"
            if word == "QUALIFY":
                what += f"; {suggest_nearest(phrase.slice(n + 1))}"
            raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")
        is_word = word in CLAUSES and not _is_name(word, before, following)
        if word in ("LIMIT", "OFFSET"):
            is_word = n > 0 and not is_operand and _is_clause(word, following)
        if is_word and (n == 0 or not is_operand or word == "FROM"):
            yield word, n


def _is_window(tokens: Sequence[Token], n: int) -> bool:
    """Whether WITHIN is followed by a span, or by an alias and a span: no column can be followed by one."""
    kinds = [token.kind for token in tokens[n + 1 : n + 3]]
    return tokens[n].keyword == "WITHIN" and "NUMBER" in kinds and kinds[0] in ("NUMBER", "INTERVAL", "VAR")


def _is_clause(word: str, following: Token | None) -> bool:
    """Whether a word that is not reserved starts a clause and is not a column."""
    if word.endswith(" BY") or word in ("UNION", "INTERSECT", "EXCEPT"):
        return True
    if word in ("QUALIFY", "WINDOW"):  # window(...) is a function
        return following is not None and following.kind in ("VAR", "IDENTIFIER")
    return following is not None and following.kind in ("NUMBER", "ALL")


def _is_name(word: str, before: Token | None, following: Token | None) -> bool:
    """Whether a word that can start a clause is a column here."""
    if following is None:
        return before is not None and before.keyword in CLAUSES  # GROUP BY within
    if word == "WITHIN" and (following.kind in _OPERATORS or following.text in (")", "]")):
        return True
    return following.text == "."


@dataclass(frozen=True)
class SelectClauses:
    """The select list, and the other clauses that are evaluated over the rows of a join."""

    items: Phrase
    group_by: Phrase | None = None
    having: Phrase | None = None
    is_distinct: bool = False
    tail: tuple[Phrase, ...] = ()
    """ORDER BY, LIMIT and OFFSET. Each phrase begins with the word of its clause."""
    where: tuple[Phrase, ...] = ()
    """The conjuncts that results must satisfy. Those of an inner join are part of its condition instead."""

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """All expressions over the results of the join."""
        optional = (*self.where, self.group_by, self.having)
        return (self.items, *(phrase for phrase in optional if phrase is not None), *self.tail)


def find_endless(clauses: SelectClauses) -> Iterator[QueryError]:
    """Yield an error for each part of a select list that needs the end of a stream."""
    tokens, text = clauses.items.tokens, clauses.items.source
    for n, token in enumerate(tokens):
        if token.keyword == "OVER" and n + 1 < len(tokens) and tokens[n + 1].text == "(":
            what = f"a window function needs a stream that ends; {suggest_nearest(clauses.items)}"
            yield make_error_at(text, token.start, what, "UNSUPPORTED_SQL")
    if clauses.is_distinct and clauses.group_by is not None:
        what = "DISTINCT is not possible over groups that still change; leave it out"
        yield make_error_at(text, tokens[0].start, what, "UNSUPPORTED_SQL")
    for phrase in clauses.tail:
        first = phrase.tokens[0]
        word = " ".join(first.keyword.split())
        what = f"{word} is not possible over streams: {ENDLESS[word]}"
        yield make_error_at(text, first.start, what, "UNSUPPORTED_SQL")


def write_out_groups(
    items: Phrase, group_by: Phrase, columns: Collection[str], name_key: Callable[[str], str]
) -> Phrase:
    """Replace the names and numbers of items in GROUP BY by the expressions of these items.

    A column has precedence over an item of the same name, as in Spark. ``name_key`` gives all spellings of
    one name the same value, and has been applied to ``columns``.

    >>> items = tokenize("date_trunc('hour', r.ts) AS h, r.k, count(*) n")
    >>> write_out_groups(items, tokenize("h, 2"), ["ts", "k"], str.casefold).text
    "date_trunc('hour', r.ts), r.k"
    """
    listed = items.split_at_commas()
    named = {name_key(name): part for name, part in map(split_name, listed) if name is not None}
    keys = []
    for key in group_by.split_at_commas():
        is_word = len(key.tokens) == 1
        name = name_key(key.tokens[0].name) if is_word else ""
        if is_word and key.text.isdecimal() and 1 <= int(key.text) <= len(listed):
            keys.append(split_name(listed[int(key.text) - 1])[1])
        elif is_word and name in named and name not in columns:
            keys.append(named[name])
        else:
            keys.append(key)
    return tokenize(", ".join(key.text for key in keys))


def split_name(item: Phrase) -> tuple[str | None, Phrase]:
    """Split an item into its name and its expression; the name is None if the item gives none."""
    tokens = item.tokens
    if len(tokens) > 2 and tokens[-2].keyword == "AS" and tokens[-2].depth == tokens[-1].depth:
        return tokens[-1].name, item.slice(0, -2)
    is_name = len(tokens) > 1 and tokens[-1].kind in ("VAR", "IDENTIFIER")
    if is_name and tokens[-2].kind in OPERAND_ENDS:
        return tokens[-1].name, item.slice(0, -1)
    return None, item


def find_name(item: Phrase) -> str | None:
    """Find the name of the column that an item makes: that of AS, or of the column it reads; None otherwise.

    >>> [find_name(item) for item in tokenize("a.x, y, a.x + 1, f(x) AS n, a.*").split_at_commas()]
    ['x', 'y', None, 'n', None]
    """
    name, _ = split_name(item)
    words, dots = item.tokens[::2], item.tokens[1::2]
    is_column = all(token.text == "." for token in dots) and all(map(_is_word, words))
    return item.tokens[-1].name if name is None and words and is_column else name


def _is_word(token: Token) -> bool:
    """Whether a token may be the name of a column; some names are also words of SQL, such as timestamp."""
    return token.may_be_name and token.keyword not in ("TRUE", "FALSE", "NULL")


def suggest_nearest(phrase: Phrase) -> str:
    """Return what to write instead of the window functions in a phrase.

    ``r JOIN s NEAREST 1 BY DISTANCE e ON c`` is ``r JOIN s ON c QUALIFY row_number() OVER (PARTITION BY r.id
    ORDER BY e) = 1`` if ``r.id`` differs from tuple to tuple, which nothing says. So it is a hint.

    >>> from thetastream.conditions import tokenize
    >>> suggest_nearest(tokenize("rank() OVER (PARTITION BY r.id ORDER BY s.t DESC) <= 2")).split(": ")[1]
    'JOIN stream NEAREST 2 BY DISTANCE s.t DESC ON condition'
    """
    k, by, tokens = "k", "expression", phrase.tokens
    for n, token in enumerate(tokens):
        if token.keyword != "OVER" or n < 3 or tokens[n - 3].keyword not in _RANKS:
            continue
        close = next((i for i in range(n + 2, len(tokens)) if tokens[i].depth == token.depth), n)
        order = next((i for i in range(n, close) if tokens[i].keyword.split() == ["ORDER", "BY"]), None)
        if order is None:
            continue
        by = phrase.slice(order + 1, close).text
        limit = tokens[close + 1 : close + 3]
        if len(limit) == 2 and limit[0].text in ("=", "<=") and limit[1].text.isdecimal():
            k = limit[1].text
    line = f"JOIN stream NEAREST {k} BY DISTANCE {by} ON condition"
    return f"for the nearest partners of each tuple, write: {line}"


class NamedItem(NamedTuple):
    """An item of a select list that computes nothing."""

    head: str
    """The first name: an alias, or a column without its alias."""
    field: str | None
    """The name after the dot. It is ``*`` for all columns, and None without a dot."""
    name: str | None
    """The name that the item gives to its column, if it gives one."""


def read_named_item(text: str) -> NamedItem | None:
    """Read an item of a select list; None if it is more than names.

    >>> read_named_item("a.`x y` AS z")
    NamedItem(head='a', field='x y', name='z')
    >>> read_named_item("a.*"), read_named_item("a.x + 1")
    (NamedItem(head='a', field='*', name=None), None)
    """
    try:
        head, *rest = tokenize(text).tokens or (None,)
    except QueryError:
        return None  # Spark says what is wrong with it.
    if head is None or not _is_identifier(head):
        return None
    field = None
    if len(rest) > 1 and rest[0].text == "." and (rest[1].text == "*" or _is_identifier(rest[1])):
        field, rest = rest[1].name, rest[2:]
    if len(rest) > 1 and rest[0].keyword == "AS":
        rest = rest[1:]
    if len(rest) > 1 or not all(map(_is_identifier, rest)):
        return None
    return NamedItem(head.name, field, rest[0].name if rest else None)


def _is_identifier(token: Token) -> bool:
    return token.text.isidentifier() or token.text[0] == "`"
