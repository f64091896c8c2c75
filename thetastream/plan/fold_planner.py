"""Plans how units fold a grouped statement: groups, aggregates, and the select list over the merged views."""

from collections.abc import Sequence
from itertools import pairwise

from thetastream.aggregate import REGISTRY, NotFoldable
from thetastream.errors import QueryError
from thetastream.plan.fold_aggregates import Aggregates
from thetastream.plan.fold_expressions import Expressions
from thetastream.plan.fold_groups import Groups
from thetastream.plan.folding import FinalJoin, Folding
from thetastream.plan.query import Resolver, Stream
from thetastream.predicate import Phrase


def plan_folding(
    items: Phrase,
    group_by: Phrase | None,
    having: Phrase | None,
    given: Sequence[Stream],
    join: FinalJoin,
    resolver: Resolver,
    result_time: str | None,
) -> Folding:
    """Plan how units fold a grouped statement.

    Parameters
    ----------
    items, group_by, having : Phrase
        The clauses as the user wrote them, with ``*`` expanded. None if a clause is missing.
    given : sequence of Stream
        The streams that the phrases read.
    join : FinalJoin
        The join whose units fold.
    resolver : Resolver
        It resolves expressions over the inputs of this join.
    result_time : str or None
        The name of a match's latest event time, if the streams have event times.

    Raises
    ------
    NotFoldable
        If units cannot fold the statement. The message gives the reason.
    """
    try:
        return _plan(items, group_by, having, join.checks, Expressions(given, join, resolver, result_time))
    except QueryError as error:
        raise NotFoldable(error.message) from None


def _plan(
    items: Phrase,
    group_by: Phrase | None,
    having: Phrase | None,
    checks: Sequence[str],
    expressions: Expressions,
) -> Folding:
    folding = Folding()
    groups, aggregates = Groups(expressions, folding), Aggregates(expressions, folding)
    if group_by is not None:
        for part in expressions.qualify(group_by).split_at_commas():
            groups.add(part)
    folding.items = _write_over_views(expressions.qualify(items), groups, aggregates)
    if having is not None:
        expressions.refuse_shadowed(items, having)
        folding.having = _write_over_views(expressions.qualify(having), groups, aggregates)
    if not (folding.groups or folding.measures or folding.pane):
        raise NotFoldable("there is nothing to fold")
    folding.where = aggregates.plan_checks(checks)
    return folding


def _write_over_views(phrase: Phrase, groups: Groups, aggregates: Aggregates) -> str:
    """Write the phrase over views: the names of merges and groups replace their texts."""
    text, tokens = phrase.text, phrase.tokens
    base = tokens[0].start
    splices: list[tuple[int, int, str]] = []
    n = 0
    while n < len(tokens):
        end, written = aggregates.find(phrase, n) or groups.find(phrase, n) or (0, "")
        if end:
            splices.append((tokens[n].start - base, tokens[end - 1].end - base, written))
        n = end or n + 1
    for start, stop, written in reversed(splices):
        text = text[:start] + written + text[stop:]
    return text


def is_surely_grouped(items: Phrase, group_by: Phrase | None) -> bool:
    """Whether the names alone show that a select list is grouped. Spark is not asked."""
    calls = (
        token.keyword
        for token, after in pairwise(items.tokens)
        if after.text == "(" and token.kind != "FIELD"
    )
    return group_by is not None or any(name in REGISTRY for name in calls)
