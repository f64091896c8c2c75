"""Writes the condition between the rows of a SELECT and those of a subquery in its WHERE.

A name in a subquery is a column of its own source, and otherwise a column of the outer one.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame

from thetastream.conditions import Phrase, split_comparisons, split_conjuncts, tokenize
from thetastream.conditions.names import qualify
from thetastream.conditions.statement import Select, Source, Subquery
from thetastream.core.how import Nearest


def write_correlated(
    subquery: Subquery,
    outer: str,
    inner: str,
    frames: Mapping[str, DataFrame],
    name_key: Callable[[str], str],
) -> list[str]:
    """Write the conjuncts of the join of the aliases ``outer`` and ``inner``."""
    seen = _list_seen(outer, inner, frames, name_key)

    def write(phrase: Phrase, columns: Mapping[str, list[str]]) -> str:
        return qualify(tokenize(phrase.text), columns, name_key).text

    written = [write(phrase, seen) for phrase in subquery.where]
    for value, column in zip(subquery.values, subquery.columns, strict=True):
        v = write(value, {outer: frames[outer].columns, inner: []})
        y = write(column, seen)
        is_known = _is_known(value, outer, frames, subquery.outer_where, name_key) and _is_known(
            column, inner, frames, (*subquery.where, *subquery.inner_where), name_key
        )
        is_exact = is_known or not subquery.is_negated
        written.append(f"({v}) = ({y})" if is_exact else f"(({v}) = ({y})) IS NOT FALSE")
    return written


def resolve_rankings(
    select: Select, frames: Mapping[str, DataFrame], name_key: Callable[[str], str]
) -> Select:
    """Write the alias before each column in the rankings of LATERAL."""
    outer = select.sources[0].alias

    def resolve(source: Source) -> Source:
        if source.subquery is None or not isinstance(source.how, Nearest):
            return source
        by = qualify(tokenize(source.how.by), _list_seen(outer, source.alias, frames, name_key), name_key)
        return replace(source, how=replace(source.how, by=by.text))

    return replace(select, sources=tuple(map(resolve, select.sources)))


def _list_seen(
    outer: str, inner: str, frames: Mapping[str, DataFrame], name_key: Callable[[str], str]
) -> dict[str, list[str]]:
    """List the columns that names in a subquery may stand for."""
    mine = frames[inner].columns
    own = {name_key(name) for name in mine}
    return {outer: [name for name in frames[outer].columns if name_key(name) not in own], inner: mine}


def _is_known(
    phrase: Phrase,
    alias: str,
    frames: Mapping[str, DataFrame],
    conditions: Iterable[Phrase],
    name_key: Callable[[str], str],
) -> bool:
    """Whether a value of a stream cannot be NULL: by the schema, or because a conjunct is not TRUE then."""
    name = _name(phrase, alias, name_key)
    fields = frames[alias].schema.fields
    if any(name_key(field.name) == name and not field.nullable for field in fields):
        return True
    for condition in conditions:
        for conjunct in split_conjuncts(condition):
            conjunct = conjunct.bare()
            operands = [conjunct.slice(0, -3)]
            if [token.keyword for token in conjunct.tokens[-3:]] != ["IS", "NOT", "NULL"]:
                operands = [side for c in split_comparisons(conjunct) for side in (c.f, c.g)]
            if any(operand and _name(operand, alias, name_key) == name for operand in operands):
                return True
    return False


def _name(phrase: Phrase, alias: str, name_key: Callable[[str], str]) -> str:
    """Write an expression in a form in which equal expressions of one stream are equal texts."""
    tokens = phrase.bare().tokens
    if len(tokens) > 2 and tokens[0].name.casefold() == alias.casefold() and tokens[1].text == ".":
        tokens = tokens[2:]
    return " ".join(name_key(token.name) for token in tokens)
