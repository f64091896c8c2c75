"""Plans how units fold a grouped statement: groups, aggregates, and the select list over the merged views.

Plans GROUP BY of a folded statement: columns that units group by, and panes of a result-time window.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from thetastream.aggregates import REGISTRY, NotFoldable
from thetastream.aggregates.simple import MatchCount
from thetastream.conditions import Phrase
from thetastream.conditions.names import find_references
from thetastream.core.errors import QueryError
from thetastream.core.spark_types import is_ordinary
from thetastream.engine.views import Pane
from thetastream.families.base import FinalJoin
from thetastream.families.views.aggregates import Aggregates
from thetastream.families.views.expressions import Expressions, find_closing
from thetastream.families.views.folding import PREFIX, VIEW_TIME, Computed, Folding
from thetastream.lowering.query import Resolver, Stream


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
        has_deletes = any(stream.change_type is not None for stream in join.streams)
        expressions = Expressions(given, join, resolver, result_time)
        return _plan(items, group_by, having, join.checks, expressions, has_deletes)
    except QueryError as error:
        raise NotFoldable(error.message) from None


def _plan(
    items: Phrase,
    group_by: Phrase | None,
    having: Phrase | None,
    checks: Sequence[str],
    expressions: Expressions,
    has_deletes: bool,
) -> Folding:
    folding = Folding()
    groups, aggregates = Groups(expressions, folding), Aggregates(expressions, folding)
    if has_deletes:
        (folding.rows,) = aggregates.measure(MatchCount(), (), None)
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


class Groups:
    """The groups of a statement.

    They are added from GROUP BY and then found in the select list and in HAVING.
    """

    def __init__(self, expressions: Expressions, folding: Folding) -> None:
        self._expressions = expressions
        self._folding = folding
        self._replaced: list[tuple[tuple[str, ...], bool, str]] = []
        """For each group: its tokens, whether it is one operand, and its name."""

    def add(self, phrase: Phrase) -> None:
        """Add a group to the folding.

        Raises
        ------
        NotFoldable
            If units cannot group by it.
        """
        self._folding.keys.append(self._write_key(phrase))

    def find(self, phrase: Phrase, n: int) -> tuple[int, str] | None:
        """Find the group that begins at token ``n``. Return the position after it and its name, or None."""
        tokens = phrase.tokens
        before = tokens[n - 1].text if n else "("
        for words, is_operand, name in self._replaced:
            end = n + len(words)
            if self._expressions.list_words(phrase.slice(n, end)) != words or before == ".":
                continue
            after = tokens[end].keyword if end < len(tokens) else ")"
            if is_operand or (before in ("(", ",") and after in (")", ",", "AS")):
                return end, name
        return None

    def _write_key(self, phrase: Phrase) -> tuple[str, str]:
        """Write the group over views: its SQL and its name."""
        first = phrase.tokens[0]
        if first.keyword in _SETS or first.kind == "NUMBER":
            raise NotFoldable(f"GROUP BY {phrase.text} is not a plain expression")
        if first.keyword == "WINDOW" and self._is_of_result_time(phrase):
            return self._write_window(phrase)
        if not find_references(phrase, self._expressions.aliases):
            is_timed = any(self._expressions.is_result_time(token) for token in phrase.tokens)
            what = "the result time in another way than window(...)" if is_timed else "no stream"
            raise NotFoldable(f"GROUP BY {phrase.text} reads {what}")
        alias = self._expressions.find_stream(phrase)
        type_ = self._expressions.resolver.type_of(phrase.text, [alias])
        if type_ is None or not is_ordinary(type_):
            raise NotFoldable(f"units do not group by {phrase.text} of type {type_}")
        name = f"{PREFIX}g{len(self._folding.groups)}"
        self._folding.groups.append(Computed(alias, phrase.text, name))
        self._replaced.append((self._expressions.list_words(phrase), is_operand(phrase), name))
        return name, name

    def _is_of_result_time(self, phrase: Phrase) -> bool:
        return len(phrase.tokens) > 3 and self._expressions.is_result_time(phrase.tokens[2])

    def _write_window(self, phrase: Phrase) -> tuple[str, str]:
        """Write a tumbling or sliding window as panes.

        Their span is the gcd of the window's length and slide.
        """
        arguments = phrase.slice(2, -1).split_at_commas() if phrase.tokens[-1].text == ")" else []
        spans = []
        for argument in arguments[1:]:
            token = argument.tokens[0] if argument else None
            if token is None or len(argument.tokens) > 1 or token.kind != "STRING":
                raise NotFoldable(f"units do not cut {phrase.text} into panes")
            spans.append(self._expressions.resolver.duration(token.text[1:-1], "a window"))
        if not 1 <= len(spans) <= 3 or len(arguments[0].tokens) > 1 or not all(spans[:2]):
            raise NotFoldable(f"units do not cut {phrase.text} into panes")
        if self._folding.pane is not None:
            raise NotFoldable("there are two windows")
        span = gcd(*spans[:2])
        self._folding.pane = Pane(span, spans[2] % span if len(spans) == 3 else 0)
        self._replaced.append((self._expressions.list_words(phrase), True, _WINDOW))
        # The name is the one that Spark gives it, so that window.start resolves.
        return f"window({VIEW_TIME}, {', '.join(argument.text for argument in arguments[1:])})", _WINDOW


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


_WINDOW = "window"
_SETS = {"ALL", "ROLLUP", "CUBE", "GROUPING"}


def is_operand(phrase: Phrase) -> bool:
    """Whether the phrase is a column or a call, so that no operator beside it takes only a part of it."""
    tokens = phrase.tokens
    if all(token.text == "." or token.kind in ("VAR", "IDENTIFIER", "FIELD") for token in tokens):
        return True
    is_named = tokens[0].kind == "IDENTIFIER" or (tokens[0].text[0].isalpha() and tokens[0].keyword != "NOT")
    is_call = is_named and len(tokens) > 2 and tokens[1].text == "("
    return is_call and find_closing(tokens, 1) == len(tokens) - 1
