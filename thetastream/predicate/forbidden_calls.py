"""Finds what Catalyst accepts but a join of streams cannot run: clocks, random values and subqueries."""

from collections.abc import Iterator

from thetastream.errors import QueryError
from thetastream.predicate.tokens import STRINGS, Phrase

TIME_DEPENDENT = {
    *("CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "LOCALTIMESTAMP", "LOCALTIME", "NOW", "CURDATE"),
}
"""Functions whose value changes from epoch to epoch. A result must not depend on the epoch that finds it."""

NON_DETERMINISTIC = {
    *("RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "RANDSTR", "UNIFORM", "MONOTONICALLY_INCREASING_ID"),
    *("SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START", "INPUT_FILE_BLOCK_LENGTH"),
}
"""Functions whose value differs each time they are evaluated."""


def find_refused(phrase: Phrase) -> Iterator[QueryError]:
    """Yield errors for what Catalyst accepts but a stream join cannot run.

    These are subqueries, functions of the clock, and functions with random results.

    >>> from thetastream.predicate.tokens import parse
    >>> [str(e) for e in find_refused(parse("a.ts > now()"))][0][:30]
    "[TIME_DEPENDENT] 'now' changes"
    """
    tokens = phrase.tokens
    for n, token in enumerate(tokens):
        after = tokens[n + 1].text if n + 1 < len(tokens) else ""
        before = tokens[n - 1] if n else None
        if token.kind == "FIELD":
            continue
        opens = before is not None and before.text == "("
        if (
            opens
            and token.keyword in ("SELECT", "WITH", "VALUES", "TABLE", "FROM")
            and after not in (",", ")", ".")
        ):
            yield QueryError(
                "SUBQUERY",
                f"a join condition cannot contain a subquery, but has {_quote_around(phrase, n)!r}; "
                'join with its table instead: how="semi" stands for IN and EXISTS, and how="anti" for NOT IN '
                "and NOT EXISTS; the WHERE of th.sql may have them",
            )
        called = after == "("
        if token.keyword in NON_DETERMINISTIC and called:
            yield QueryError(
                "NON_DETERMINISTIC",
                f"{token.text!r} has a new value each time, so a retried epoch would give another result; "
                "compute it in a column that is stored with the tuple",
            )
        clock = token.keyword in TIME_DEPENDENT and (called or token.keyword not in ("NOW", "CURDATE"))
        clock |= (
            token.keyword == "UNIX_TIMESTAMP" and called and n + 2 < len(tokens) and tokens[n + 2].text == ")"
        )
        clock |= (
            token.kind in STRINGS
            and before is not None
            and before.keyword.startswith(("DATE", "TIMESTAMP"))
            and token.text.strip("rR'\" ").lower() in ("now", "today", "tomorrow", "yesterday")
        )
        if clock:
            yield QueryError(
                "TIME_DEPENDENT",
                f"{token.text!r} changes from epoch to epoch, and the join of two tuples must not change; "
                "compute it in a column before the join, or use within=",
            )


def _quote_around(phrase: Phrase, n: int) -> str:
    return phrase.source[phrase.tokens[n - 1].start : phrase.tokens[min(n + 2, len(phrase.tokens) - 1)].end]
