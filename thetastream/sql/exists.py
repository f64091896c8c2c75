"""Reads EXISTS in WHERE as a join: ``r WHERE EXISTS (SELECT 1 FROM s WHERE c)`` is ``r SEMI JOIN s ON c``."""

from collections.abc import Callable
from dataclasses import replace

from thetastream.predicate import Phrase, make_error_at, split_conjuncts
from thetastream.sql.statement import Select, Source


def read_exists(
    text: str, where: Phrase, outer: Source, read_select: Callable[[str, Phrase], Select]
) -> tuple[Source | None, list[Phrase], list[Phrase]]:
    """Read the WHERE of a SELECT over one source.

    Returns
    -------
    source, conditions, rest
        The source of the subquery with the kind of its join, the conditions of the join, and the other
        conjuncts of WHERE. The source is None if no conjunct is an EXISTS.
    """
    conjuncts = split_conjuncts(where)
    found = [(conjunct, body) for conjunct in conjuncts if (body := _find_body(conjunct)) is not None]
    if not found:
        return None, [], [where]
    (conjunct, body), *others = found
    if others:
        what = "one EXISTS is a join of two inputs; put the other one into a subquery in FROM"
        raise make_error_at(text, others[0][0].tokens[0].start, what, "UNSUPPORTED_SQL")
    start = conjunct.tokens[0].start
    if not body:
        raise make_error_at(text, start, "the subquery is empty")
    inner = read_select(text, body)
    plain = inner.within is None and not (inner.group_by or inner.having or inner.tail or inner.named)
    if len(inner.sources) != 1 or not plain:
        what = "EXISTS needs SELECT ... FROM source WHERE condition; WITHIN stands behind the outer WHERE"
        raise make_error_at(text, start, what, "UNSUPPORTED_SQL")
    if any(token.text == "(" for token in inner.items.tokens):
        # An aggregate has a row even if no row of the source matches.
        what = (
            "the select list of EXISTS has columns and constants only, because an aggregate always has a row"
        )
        raise make_error_at(text, inner.items.tokens[0].start, f"{what}; write SELECT 1", "UNSUPPORTED_SQL")
    if not inner.conditions:
        raise make_error_at(text, start, "EXISTS needs a WHERE that compares both inputs")
    if inner.sources[0].alias.casefold() == outer.alias.casefold():
        what = f"the alias {outer.alias!r} is taken; name the inner one with AS"
        raise make_error_at(text, inner.sources[0].start, what, "DUPLICATE_ALIAS")
    how = "anti" if conjunct.bare().tokens[0].keyword == "NOT" else "semi"
    rest = [part for part in conjuncts if part is not conjunct]
    return replace(inner.sources[0], how=how), list(inner.conditions), rest


def _find_body(conjunct: Phrase) -> Phrase | None:
    """Return the text in the brackets of ``[NOT] EXISTS (...)``; None for any other conjunct."""
    conjunct = conjunct.bare()
    if conjunct.tokens and conjunct.tokens[0].keyword == "NOT":
        conjunct = conjunct.slice(1).bare()
    if not conjunct.tokens or conjunct.tokens[0].keyword != "EXISTS":
        return None
    body = conjunct.slice(1)
    if not body or body.tokens[0].text != "(" or body.tokens[-1].text != ")":
        return None
    body = body.slice(1, -1)
    # exists(array, x -> ...) is a function.
    return body if not body or body.tokens[0].keyword in ("SELECT", "WITH") else None
