"""Reads LATERAL as the join that it is: of the nearest rows of a source, or of all that satisfy a condition.

    r JOIN LATERAL (SELECT * FROM s WHERE c ORDER BY e LIMIT k) AS q ON d
    r JOIN s AS q NEAREST k BY DISTANCE e ON c AND d

    r JOIN LATERAL (SELECT * FROM s WHERE c) AS q ON d
    r JOIN s AS q ON c AND d

Each second line means what the first one means.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from thetastream.conditions.clauses import find_name, split_name
from thetastream.conditions.names import find_free_names
from thetastream.conditions.statement import Select, Source, Subquery
from thetastream.conditions.tokens import Phrase, Token, make_error_at, tokenize
from thetastream.core.errors import QueryError
from thetastream.core.how import Nearest

_FORM = "JOIN stream AS name NEAREST k BY DISTANCE expression ON condition"
_KEEPS_UNMATCHED = {"inner": False, "left": True}


def read_lateral(
    text: str,
    kind: str,
    phrase: Phrase,
    before: Sequence[Source],
    read_select: Callable[[str, Phrase], Select],
) -> Source:
    """Read ``(SELECT ... FROM s WHERE c ORDER BY e LIMIT k) AS name`` behind LATERAL."""
    tokens, start = phrase.tokens, phrase.tokens[0].start
    close = next(n for n in phrase.top if n and tokens[n].text == ")")
    name = split_name(tokenize(f"x {phrase.slice(close + 1).text}"))[0] if close + 1 < len(tokens) else None
    inner = read_select(text, phrase.slice(1, close))
    source, tail = inner.sources[0], {part.tokens[0].keyword.split()[0]: part for part in inner.tail}
    items = inner.items.split_at_commas()
    others = (inner.within, inner.group_by, inner.having, inner.named, inner.is_distinct, "OFFSET" in tail)
    if len(inner.sources) > 1 or any(others) or source.select or not all(map(_is_own, items)):
        what = (
            "LATERAL has the nearest rows of one source, with its own columns: "
            f"LATERAL (SELECT * FROM s WHERE c ORDER BY e LIMIT k) AS name; or write {_FORM}"
        )
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    if kind not in _KEEPS_UNMATCHED or len(before) != 1:
        what = f"LATERAL follows JOIN, LEFT JOIN or a comma behind one source; write {_FORM}"
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    alias = name or source.alias
    where = tuple(_rename(part, source.alias, alias) for part in inner.conditions)
    how: str | Nearest = kind
    if "LIMIT" in tail:
        how = _read_ranking(text, tail, source.alias, alias, _KEEPS_UNMATCHED[kind])
    is_narrowed = not all(item.text.endswith("*") for item in items)
    return replace(source, alias=alias, how=how, subquery=Subquery(where, is_narrowed=is_narrowed))


def refuse_star(text: str, items: Phrase, sources: Sequence[Source]) -> None:
    """Raise if a star would show columns that a subquery behind LATERAL does not select."""
    if not any(source.subquery is not None and source.subquery.is_narrowed for source in sources):
        return
    for n, token in enumerate(items.tokens):
        before = items.tokens[n - 1] if n else None
        if token.kind == "STAR" and (before is None or before.text in (",", ".")):
            what = "a star needs LATERAL (SELECT * ...); name the columns"
            raise make_error_at(text, token.start, what, "UNSUPPORTED_SQL")


def _is_own(item: Phrase) -> bool:
    """Whether an item is a star, or a column under its own name."""
    return item.text.endswith("*") or (find_name(item) is not None and split_name(item)[0] is None)


def _read_ranking(text: str, tail: dict[str, Phrase], old: str, alias: str, keeps_unmatched: bool) -> Nearest:
    limit, order = tail["LIMIT"].slice(1), tail.get("ORDER")
    keys = [] if order is None else order.slice(1).split_at_commas()
    if len(keys) != 1 or not limit.text.isdecimal():
        what = "LATERAL with LIMIT needs ORDER BY one expression and a whole number: ORDER BY s.t LIMIT 1"
        raise make_error_at(text, limit.tokens[0].start, what, "UNSUPPORTED_SQL")
    (key,) = keys
    words = [token.keyword for token in key.tokens]
    by = _rename(key, old, alias).text
    if "NULLS" not in words[-2:]:
        # Spark's ORDER BY has NULL first, unless it is descending.
        by += " NULLS LAST" if words[-1] == "DESC" else " NULLS FIRST"
    try:
        return Nearest(int(limit.text), by, keeps_unmatched)
    except QueryError as problem:
        raise make_error_at(text, limit.tokens[0].start, problem.message, problem.condition) from None


def _rename(phrase: Phrase, old: str, new: str) -> Phrase:
    """Write another alias in place of ``old``."""
    if old == new:
        return phrase
    base, text, tokens = phrase.tokens[0].start, phrase.text, phrase.tokens
    for n, token in reversed(list(find_free_names(phrase))):
        is_dotted = n + 1 < len(tokens) and tokens[n + 1].text == "."
        if token.name.casefold() == old.casefold() and is_dotted:
            text = text[: token.start - base] + f"`{new}`" + text[token.end - base :]
    return tokenize(text)


def refuse_lateral_view(text: str, tokens: Sequence[Token]) -> QueryError:
    """Make an error for LATERAL VIEW and for LATERAL before a function."""
    what = "make the rows of a function before the join: FROM (SELECT *, explode(x) AS y FROM s) AS s"
    return make_error_at(text, tokens[0].start, what, "UNSUPPORTED_SQL")
