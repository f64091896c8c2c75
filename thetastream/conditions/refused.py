"""Finds what Catalyst accepts but a join of streams cannot run: clocks, random values and subqueries.

``find_misspelt`` finds misspelt operators, which Spark reports as an error of the grammar somewhere else.
"""

import difflib
from collections.abc import Iterator, Sequence

from thetastream.conditions.tokens import OPERAND_ENDS, STRINGS, Phrase, Token
from thetastream.core.errors import Mark, QueryError

TIME_DEPENDENT = {
    *("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP", "LOCALTIME", "NOW", "CURDATE"),
}
"""Functions whose value changes from epoch to epoch. A result must not depend on the epoch that finds it."""

NON_DETERMINISTIC = {
    *("RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID"),
    *("SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH"),
}
"""Functions whose value differs each time they are evaluated."""
_RANDOM = (
    "NON_DETERMINISTIC",
    "has a new value each time, so a retried epoch would give another result; "
    "compute it in a column that is stored with the tuple",
)
_CLOCK = (
    "TIME_DEPENDENT",
    "changes from epoch to epoch, and the join of two tuples must not change; "
    "compute it in a column before the join, or use within=",
)
_SUBQUERY = (
    "SUBQUERY",
    "reads a table, whose rows may be others in the next epoch, and the join of two tuples must not change; "
    "join with the table too",
)
_WHY_REFUSED = dict([_RANDOM, _CLOCK, _SUBQUERY])
"""Why a condition must not have such a value, by the name of the error."""
_TIMES = ("DATE", "TIMESTAMP")
"""How the names of types and functions of dates and timestamps begin."""
_OPERATORS = ("BETWEEN", "AND", "OR", "NOT", "LIKE", "ILIKE", "RLIKE", "IN", "IS", "DIV")


def find_refused(phrase: Phrase) -> Iterator[QueryError]:
    """Yield errors for what Catalyst accepts but a stream join cannot run.

    These are subqueries, functions of the clock, and functions with random results.

    >>> from thetastream.conditions.tokens import parse
    >>> [str(e) for e in find_refused(parse("a.ts > now()"))][0][:30]
    "[TIME_DEPENDENT] 'now' changes"
    """
    for n in find_subqueries(phrase):
        yield QueryError(
            "SUBQUERY",
            f"a join condition cannot contain a subquery, but has {_quote_around(phrase, n)!r}; "
            'join with its table instead: how="semi" stands for IN and EXISTS, and how="anti" for NOT IN '
            "and NOT EXISTS; the WHERE of th.sql may have these four, each as a conjunct",
        )
    for token, condition in find_varying(phrase):
        yield make_varying_error(token.text, condition)


def make_varying_error(text: str, condition: str) -> QueryError:
    """Make an error for a part of a join condition whose value may change.

    ``condition`` is NON_DETERMINISTIC, TIME_DEPENDENT, or SUBQUERY for a subquery in a SQL function.
    """
    return QueryError(condition, f"{text!r} {_WHY_REFUSED[condition]}")


def find_varying(phrase: Phrase) -> Iterator[tuple[Token, str]]:
    """Yield each name of a function whose value depends on more than its arguments, with the error for it.

    >>> from thetastream.conditions.tokens import parse
    >>> [(token.text, error) for token, error in find_varying(parse("rand() < 0.5 AND d < current_date"))]
    [('rand', 'NON_DETERMINISTIC'), ('current_date', 'TIME_DEPENDENT')]
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens):
        after = tokens[n + 1].text if n + 1 < len(tokens) else ""
        if token.kind == "FIELD":
            continue
        called = after == "("
        if token.keyword in NON_DETERMINISTIC and called:
            yield token, _RANDOM[0]
        clock = token.keyword in TIME_DEPENDENT and (called or token.keyword not in ("NOW", "CURDATE"))
        clock |= (
            token.keyword == "UNIX_TIMESTAMP" and called and n + 2 < len(tokens) and tokens[n + 2].text == ")"
        )
        clock |= (
            token.kind in STRINGS
            and token.text.strip("rR'\" ").lower() in ("now", "today", "tomorrow", "yesterday")
            and _is_time(tokens, n)
        )
        if clock:
            yield token, _CLOCK[0]


def _is_time(tokens: Sequence[Token], n: int) -> bool:
    """Whether a text becomes a date or a timestamp: ``DATE 'now'``, ``'now'::DATE``, ``CAST('now' AS DATE)``.

    >>> from thetastream.conditions.tokens import parse
    >>> texts = "to_date('now')", "CAST('now' AS DATE)", "upper('now')"
    >>> [_is_time(parse(text).tokens, 2) for text in texts]
    [True, True, False]
    """
    first, second = ["", *(one.keyword for one in tokens[max(n - 2, 0) : n])][-2:] if n else ("", "")
    after, type_ = [*(one.keyword for one in tokens[n + 1 : n + 3]), "", ""][:2]
    if second == "(" and first in ("CAST", "TRY_CAST"):
        return after == "AS" and type_.startswith(_TIMES)
    if second == "(" and first.removeprefix("TRY_").removeprefix("TO_").startswith(_TIMES):
        return True
    return second.startswith(_TIMES) or (after == "::" and type_.startswith(_TIMES))


def find_subqueries(phrase: Phrase) -> Iterator[int]:
    """Yield the number of the first token of each subquery, which stands behind its bracket.

    >>> from thetastream.conditions.tokens import parse
    >>> list(find_subqueries(parse("a.x = (SELECT max(x) FROM b)")))
    [5]
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens):
        after = tokens[n + 1].text if n + 1 < len(tokens) else ""
        opens = n > 0 and tokens[n - 1].text == "(" and token.kind != "FIELD"
        begins = token.keyword in ("SELECT", "WITH", "VALUES", "TABLE", "FROM")
        if opens and begins and after not in (",", ")", "."):
            yield n


def _quote_around(phrase: Phrase, n: int) -> str:
    return phrase.source[phrase.tokens[n - 1].start : phrase.tokens[min(n + 2, len(phrase.tokens) - 1)].end]


def find_misspelt(phrase: Phrase) -> QueryError | None:
    """Find a misspelt operator: a word between two operands that is almost an operator.

    >>> from thetastream.conditions.tokens import parse
    >>> print(find_misspelt(parse("a.x BETWEN b.lo AND b.hi")))
    [SYNTAX] 'BETWEN' is no operator; did you mean BETWEEN?
    >>> find_misspelt(parse("a.ts > b.ts - INTERVAL 1 DAY")) is None
    True
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens[:-1]):
        if (
            not n
            or token.kind != "VAR"
            or tokens[n - 1].kind not in OPERAND_ENDS
            or token.keyword in _OPERATORS
        ):
            continue
        following = tokens[n + 1]
        near = difflib.get_close_matches(token.keyword, _OPERATORS, 1, 0.7)
        if near and (following.kind in ("VAR", "IDENTIFIER", "NUMBER", "STRING", "L_PAREN")):
            start = token.start - tokens[0].start
            mark = Mark(phrase.text, start, start + len(token.text))
            return QueryError("SYNTAX", f"{token.text!r} is no operator; did you mean {near[0]}?", mark)
    return None
