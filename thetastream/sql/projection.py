"""Pre-projection: only the columns that a statement reads are carried through the join."""

from collections.abc import Collection, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.frontend.condition import On
from thetastream.frontend.streams import MARK
from thetastream.plan.domains import quoted
from thetastream.predicate import Phrase, Predicate, tokenize


def read_names(phrases: Iterable[Phrase], alias: str) -> set[str] | None:
    """Names, lower case, that phrases hold; None if they read the stream as a whole."""
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


def names_in(on: On, alias: str) -> set[str] | None:
    """Names, lower case, that a condition may mean a column by; None if it reads the stream as a whole."""
    parts = [on] if isinstance(on, str | Predicate) else list(on)
    names = read_names([tokenize(part) for part in parts if isinstance(part, str)], alias)
    read = [part.columns for part in parts if isinstance(part, Predicate)]
    called = {name.casefold() for columns in read for _, names in columns for name in names}
    return None if names is None else names | called


def projected(frame: DataFrame, names: Collection[str] | None) -> DataFrame:
    """The columns of these lower-case names, and those that may be event time."""
    if names is None:
        return frame
    kept = [
        field.name
        for field in frame.schema.fields
        if field.name.casefold() in names
        or MARK in (field.metadata or {})
        or (not frame.isStreaming and field.dataType.simpleString() in ("timestamp", "timestamp_ntz"))
    ]
    if not kept:
        kept = frame.columns[:1]  # a tuple of no columns would not be counted
    if len(set(map(str.casefold, kept))) < len(kept):
        return frame  # a name that is there twice is refused by name later
    return frame.select(*(F.col(quoted(name)) for name in kept))


def is_star(phrase: Phrase, n: int) -> bool:
    """Whether the star at ``n`` stands for columns, as opposed to a product or count(*)."""
    before = phrase.tokens[n - 1] if n else None
    if before is None or before.text in (",", ".") or before.keyword == "DISTINCT":
        return True
    is_count = before.text == "(" and n > 1 and phrase.tokens[n - 2].keyword == "COUNT"
    return before.text == "(" and not is_count
