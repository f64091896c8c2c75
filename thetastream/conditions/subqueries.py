"""Reads subqueries in WHERE as semi and anti joins.

    r WHERE EXISTS (SELECT 1 FROM s WHERE c)        r SEMI JOIN s ON c
    r WHERE NOT EXISTS (SELECT 1 FROM s WHERE c)    r ANTI JOIN s ON c
    r WHERE v IN (SELECT y FROM s WHERE c)          r SEMI JOIN s ON c AND v = y
    r WHERE v NOT IN (SELECT y FROM s WHERE c)      r ANTI JOIN s ON c AND (v = y) IS NOT FALSE

The last line has SQL's meaning of NULL: if it is unknown whether a row is in the subquery, it is no result.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from thetastream.conditions.clauses import find_name
from thetastream.conditions.phrases import split_conjuncts
from thetastream.conditions.statement import Select, Source, Subquery
from thetastream.conditions.tokens import Phrase, make_error_at, tokenize

ReadSelect = Callable[[str, Phrase], Select]
_APART = "put the join into a subquery: FROM (SELECT ... FROM {names} ...) AS q WHERE q.x IN (SELECT ...)"


class _Found(NamedTuple):
    """A conjunct ``[NOT] EXISTS (body)``, or ``values [NOT] IN (body)``."""

    conjunct: Phrase
    body: Phrase
    is_negated: bool
    values: tuple[Phrase, ...] = ()

    @property
    def word(self) -> str:
        return "IN" if self.values else "EXISTS"

    @property
    def start(self) -> int:
        return self.conjunct.tokens[0].start


def read_subqueries(
    text: str, where: Phrase, sources: Sequence[Source], read_select: ReadSelect
) -> tuple[list[Source], list[Phrase]]:
    """Read the WHERE of a SELECT.

    Returns
    -------
    sources, rest
        The source of each subquery with the kind of its join, and the other conjuncts of WHERE.
    """
    conjuncts = split_conjuncts(where)
    found = [one for conjunct in conjuncts if (one := _find_subquery(text, conjunct)) is not None]
    if not found:
        return [], [where]
    if len(sources) > 1:
        names = ", ".join(source.alias for source in sources)
        what = f"{found[0].word} (SELECT ...) asks about the rows of one input; {_APART.format(names=names)}"
        raise make_error_at(text, found[0].start, what, "UNSUPPORTED_SQL")
    read = [one.conjunct for one in found]
    rest = [part for part in conjuncts if part not in read]
    taken, inner = [source.alias for source in sources], list[Source]()
    for one in found:
        inner.append(_read_source(text, one, taken, rest, read_select))
        taken.append(inner[-1].alias)
    return inner, rest


def _find_subquery(text: str, conjunct: Phrase) -> _Found | None:
    """Read ``[NOT] EXISTS (SELECT ...)`` or ``values [NOT] IN (SELECT ...)``; None for any other conjunct."""
    phrase, is_negated = conjunct.bare(), False
    while phrase.tokens and phrase.tokens[0].keyword == "NOT":
        phrase, is_negated = phrase.slice(1).bare(), not is_negated
    for n in phrase.top:
        token = phrase.tokens[n]
        body = _find_body(phrase.slice(n + 1))
        if body is None or token.kind == "FIELD":
            continue
        if token.keyword == "EXISTS" and n == 0:
            return _Found(conjunct, body, is_negated)
        if token.keyword == "IN" and n > 0:
            value = phrase.slice(0, n)
            if value.tokens[-1].keyword == "NOT":
                value, is_negated = value.slice(0, -1), not is_negated
            if value:
                return _Found(conjunct, body, is_negated, tuple(value.bare().split_at_commas()))
        if token.keyword in ("ANY", "SOME", "ALL") and n > 1:
            raise _refuse_quantifier(text, phrase, n)
    return None


def _find_body(phrase: Phrase) -> Phrase | None:
    """Return the text in the brackets of ``(SELECT ...)``; None if the phrase is something else.

    A list of values and ``exists(array, x -> ...)`` are no subqueries.
    """
    if len(phrase.tokens) < 2 or phrase.tokens[0].text != "(" or phrase.bare().tokens == phrase.tokens:
        return phrase if len(phrase.tokens) == 2 and phrase.text == "()" else None
    body = phrase.slice(1, -1)
    return body if body.tokens[0].keyword in ("SELECT", "WITH") else None


def _refuse_quantifier(text: str, phrase: Phrase, n: int) -> Exception:
    """Make an error that names the form to write in place of ``v = ANY (SELECT ...)``."""
    operator, word = phrase.tokens[n - 1], phrase.tokens[n].keyword
    value = phrase.slice(0, n - 1).text
    forms = {("EQ", "ANY"): "IN", ("EQ", "SOME"): "IN", ("NEQ", "ALL"): "NOT IN"}
    form = forms.get((operator.kind, word))
    line = f"{value} {form} (SELECT ...)" if form else "[NOT] EXISTS (SELECT 1 FROM s WHERE ...)"
    what = f"{operator.text} {word} (SELECT ...) is not supported; write {line}"
    return make_error_at(text, phrase.tokens[n].start, what, "UNSUPPORTED_SQL")


def _read_source(
    text: str, found: _Found, taken: Collection[str], rest: Sequence[Phrase], read_select: ReadSelect
) -> Source:
    """Read the subquery as the input of a semi or an anti join."""
    if not found.body or found.body.text == "()":
        raise make_error_at(text, found.start, "the subquery is empty")
    inner = read_select(text, found.body)
    how = "anti" if found.is_negated else "semi"
    if not found.values:
        _check_exists(text, found, inner, taken)
        return replace(inner.sources[0], how=how, subquery=Subquery(inner.conditions))
    columns = inner.items.split_at_commas()
    if len(columns) != len(found.values) or any(column.text.endswith("*") for column in columns):
        what = f"IN compares {len(found.values)} values, so the subquery must select as many columns by name"
        raise make_error_at(text, inner.items.tokens[0].start, what, "UNSUPPORTED_SQL")
    source = inner.sources[0]
    if _is_plain(inner) and source.alias.casefold() not in map(str.casefold, taken):
        subquery = Subquery(inner.conditions, found.values, tuple(columns), found.is_negated, tuple(rest))
        return replace(source, how=how, subquery=subquery)
    # The subquery is an input of its own, which reads nothing of the outer one.
    if _is_plain(inner) and not any(token.text == "." for column in columns for token in column.tokens):
        inner, conditions = replace(inner, items=tokenize("*"), is_distinct=False), inner.conditions
    else:
        names = [find_name(column) for column in columns]
        if any(name is None for name in names):
            what = "each column that the subquery of IN selects needs a name: SELECT x + 1 AS y"
            raise make_error_at(text, inner.items.tokens[0].start, what, "UNSUPPORTED_SQL")
        columns, conditions = [tokenize(f"`{name}`") for name in names], ()
    alias = "subquery"
    while alias in map(str.casefold, taken):
        alias += "_"
    subquery = Subquery(
        (), found.values, tuple(columns), found.is_negated, tuple(rest), inner_where=conditions
    )
    return Source(alias, "", found.start, inner, how, subquery=subquery)


def _is_plain(inner: Select) -> bool:
    """Whether a subquery is SELECT ... FROM source WHERE condition."""
    clauses = (inner.within, inner.group_by, inner.having, inner.tail, inner.named, inner.where)
    has_call = any(token.text == "(" for token in inner.items.tokens)
    return len(inner.sources) == 1 and not any(clauses) and not has_call


def _check_exists(text: str, found: _Found, inner: Select, taken: Collection[str]) -> None:
    if any(token.text == "(" for token in inner.items.tokens):
        # An aggregate has a row even if no row of the source matches.
        what = (
            "the select list of EXISTS has columns and constants only, because an aggregate always has a row"
        )
        raise make_error_at(text, inner.items.tokens[0].start, f"{what}; write SELECT 1", "UNSUPPORTED_SQL")
    if not _is_plain(inner):
        what = "EXISTS needs SELECT ... FROM source WHERE condition; WITHIN stands behind the outer WHERE"
        raise make_error_at(text, found.start, what, "UNSUPPORTED_SQL")
    if not inner.conditions:
        raise make_error_at(text, found.start, "EXISTS needs a WHERE that compares both inputs")
    if inner.sources[0].alias.casefold() in map(str.casefold, taken):
        what = f"the alias {inner.sources[0].alias!r} is taken; name the inner one with AS"
        raise make_error_at(text, inner.sources[0].start, what, "DUPLICATE_ALIAS")
