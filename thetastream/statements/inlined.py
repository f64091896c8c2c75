"""Writes a grouped SELECT over a subquery as a grouped SELECT over the join that is in the subquery.

    SELECT k, sum(v) FROM (SELECT a.k, a.x * b.y AS v FROM a, b WHERE ...) GROUP BY k
    SELECT a.k, sum((a.x * b.y)) FROM a, b WHERE ... GROUP BY a.k

So the units of the join can fold its results. Names of the subquery are replaced by its expressions. This is
refused if a name could then mean something else.
"""

from collections.abc import Collection, Mapping

from thetastream.aggregates import NotFoldable
from thetastream.conditions import Phrase, tokenize
from thetastream.conditions.clauses import SelectClauses, find_name, split_name
from thetastream.conditions.names import find_free_names, is_keyword_here
from thetastream.conditions.statement import Select
from thetastream.families.views.expressions import has_plain_calls
from thetastream.families.views.planner import is_operand
from thetastream.statements.join_select import JoinSelect, is_star


def inline(select: Select, inner: JoinSelect) -> SelectClauses:
    """Write the clauses of a SELECT over the streams of its subquery.

    Parameters
    ----------
    select : Select
        A SELECT whose only source is a subquery.
    inner : JoinSelect
        The subquery: a join whose select list makes one row of each result.

    Raises
    ------
    NotFoldable
        If the clauses would not certainly have the same meaning.
    """
    outer, projected, name_key = select.clauses, inner.clauses, inner.name_key
    if any((select.conditions, outer.where, outer.tail, projected.where, projected.tail)):
        raise NotFoldable("a subquery and its SELECT both select rows")
    if outer.is_distinct or projected.is_distinct:
        raise NotFoldable("DISTINCT compares rows")
    expressions = _name_items(inner)
    named = {name_key(name) for name, _ in map(split_name, outer.items.split_at_commas()) if name is not None}
    if outer.having is not None and named & expressions.keys():
        raise NotFoldable("a name in HAVING is a column and a name of the select list")
    columns = [name for frame in inner.frames.values() for name in frame.columns]
    hidden = {name_key(name) for name in [*inner.frames, *columns]}

    def write(phrase: Phrase) -> Phrase:
        return _write(phrase, select.sources[0].alias, expressions, hidden - expressions.keys(), inner)

    return SelectClauses(
        write(outer.items),
        None if outer.group_by is None else write(outer.group_by),
        None if outer.having is None else write(outer.having),
    )


def _name_items(inner: JoinSelect) -> dict[str, str]:
    """Return the expression of each column of the subquery, by the folded name of the column."""
    expressions: dict[str, str] = {}
    for item in inner.clauses.items.split_at_commas():
        name, (_, expression) = find_name(item), split_name(item)
        if name is None or inner.name_key(name) in expressions:
            raise NotFoldable(f"{item.text} of the subquery has no name of its own")
        if not has_plain_calls(expression):
            raise NotFoldable(f"{item.text} of the subquery may make other rows")
        text = expression.text
        expressions[inner.name_key(name)] = text if is_operand(expression) else f"({text})"
    return expressions


def _write(
    phrase: Phrase, alias: str, expressions: Mapping[str, str], hidden: Collection[str], inner: JoinSelect
) -> Phrase:
    """Replace the names of the subquery, with or without its alias, by their expressions."""
    tokens, text, base = phrase.tokens, phrase.text, phrase.tokens[0].start
    if any(token.kind == "STAR" and is_star(phrase, n) for n, token in enumerate(tokens)):
        raise NotFoldable("a star stands for the columns of the subquery")
    splices = []
    for n, token in find_free_names(phrase):
        is_dotted = n + 2 < len(tokens) and tokens[n + 1].text == "."
        is_qualified = is_dotted and token.name.casefold() == alias.casefold()
        end = n + 2 if is_qualified else n
        name = inner.name_key(tokens[end].name)
        if not is_dotted and is_keyword_here(phrase, n):
            continue
        if name in expressions:
            splices.append((token.start - base, tokens[end].end - base, expressions[name]))
        elif name in hidden or token.name.casefold() == alias.casefold():
            raise NotFoldable(f"{token.text} would be another column without the subquery")
    for start, stop, written in reversed(splices):
        text = text[:start] + written + text[stop:]
    return tokenize(text)
