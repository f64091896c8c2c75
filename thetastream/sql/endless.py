"""Finds the parts of a SELECT that no unbounded stream can answer."""

from collections.abc import Iterator

from thetastream.errors import QueryError
from thetastream.predicate import make_error_at
from thetastream.sql.clauses import ENDLESS
from thetastream.sql.select_clauses import SelectClauses
from thetastream.sql.window_functions import suggest_nearest


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
