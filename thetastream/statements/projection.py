"""Pre-projection: finds the columns that a statement reads, because only these go through the join."""

from collections.abc import Iterable

from pyspark.sql import Column

from thetastream.conditions import Phrase, Predicate, tokenize
from thetastream.joins.ask.request import Conjunct, On


def find_names(phrases: Iterable[Phrase], alias: str) -> set[str] | None:
    """Find all names in phrases, in lower case; None if the phrases read the stream as a whole."""
    names = set()
    for phrase in phrases:
        for n, token in enumerate(phrase.tokens):
            if token.kind == "STAR" and is_star(phrase, n):
                return None
            is_dotted = n + 1 < len(phrase.tokens) and phrase.tokens[n + 1].text == "."
            if token.name.casefold() == alias.casefold() and not is_dotted:
                return None  # as in to_json(r)
            names.add(token.name.casefold())
    return names


def find_names_in(on: On, alias: str) -> set[str] | None:
    """Find all names in a condition that may be columns, in lower case; None if it reads the whole stream."""
    parts = [on] if isinstance(on, Conjunct) else list(on)
    if any(isinstance(part, Column) for part in parts):
        return None  # A Column does not say which names it reads.
    names = find_names([tokenize(part) for part in parts if isinstance(part, str)], alias)
    read = [part.columns for part in parts if isinstance(part, Predicate)]
    called = {name.casefold() for columns in read for _, names in columns for name in names}
    return None if names is None else names | called


def is_star(phrase: Phrase, n: int) -> bool:
    """Whether the star at ``n`` means columns, and neither a product nor count(*)."""
    before = phrase.tokens[n - 1] if n else None
    if before is None or before.text in (",", ".") or before.keyword == "DISTINCT":
        return True
    is_count = before.text == "(" and n > 1 and phrase.tokens[n - 2].keyword == "COUNT"
    return before.text == "(" and not is_count
