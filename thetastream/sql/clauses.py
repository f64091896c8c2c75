"""Cuts a statement into its clauses, at the words with which they begin."""

from collections.abc import Iterator

from thetastream.predicate import Phrase, make_error_at
from thetastream.predicate.tokens import Token
from thetastream.sql.window_functions import suggest_nearest

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
        is_operand = before is not None and before.kind in _OPERATORS
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
