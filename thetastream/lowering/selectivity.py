"""Chooses the join order of a pipeline: the stream with the smallest estimated result comes first.

    size(R, s) = size(R) * window(s) * product of selectivities of the conjuncts that s completes

Nothing is known about the values of a stream before the query runs. So selectivities are the defaults of
System R (Selinger et al., SIGMOD 1979, table 1). Sizes are the rates of the statistics times the windows, or
the sizes of count windows. Without statistics, all rates are equal.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

from thetastream.conditions import Phrase, Predicate, find_comparisons
from thetastream.conditions.names import find_references
from thetastream.lowering.query import Query
from thetastream.lowering.statistics import Statistics

EQUALITY, BAND, INEQUALITY, OTHER = 1 / 10, 1 / 4, 1 / 3, 1 / 3
Tie = tuple[frozenset[str], float]
"""The aliases that a conjunct reads and its selectivity."""


def estimate_selectivity(conjunct: Phrase) -> float:
    """Estimate the share of combinations for which a conjunct is true.

    >>> from thetastream.conditions import parse
    >>> [estimate_selectivity(parse(text)) for text in ("a.x = b.x", "abs(a.x - b.x) <= 3")]
    [0.1, 0.25]
    """
    if any(comparison.op == "<=>" for comparison in find_comparisons(conjunct)):
        return EQUALITY
    kinds = conjunct.bare().kinds
    if "OR" in kinds or "NOT" in kinds:
        return OTHER
    if "EQ" in kinds:
        return EQUALITY
    is_distance = conjunct.bare().tokens[0].keyword == "ABS" and any(kind in kinds for kind in ("LT", "LTE"))
    if "BETWEEN" in kinds or is_distance:
        return BAND
    return INEQUALITY if any(kind in kinds for kind in ("LT", "LTE", "GT", "GTE")) else OTHER


def find_aliases(part: Phrase | Predicate, aliases: Sequence[str]) -> frozenset[str]:
    """Return the aliases that a conjunct or a Python predicate reads."""
    if isinstance(part, Predicate):
        named = {alias.casefold() for alias, _ in part.columns}
        return frozenset(alias for alias in aliases if alias.casefold() in named)
    return frozenset(find_references(part, aliases))


def list_ties(query: Query) -> list[Tie]:
    """Return the tie of each conjunct and predicate: the aliases that it reads and its selectivity."""
    ties = [(find_aliases(phrase, query.aliases), estimate_selectivity(phrase)) for phrase in query.conjuncts]
    return ties + [(find_aliases(predicate, query.aliases), OTHER) for predicate in query.predicates]


def estimate_sizes(query: Query, statistics: Statistics | None = None) -> dict[str, float]:
    """Estimate the stored tuples of each stream up to a common factor."""
    if query.counts is not None:
        return dict(zip(query.aliases, map(float, query.counts), strict=True))
    spans = query.within_us or (0,) * len(query.streams)
    known = statistics or Statistics()
    return {
        alias: known.rate_of(alias) * (1 + span / 1e6)
        for alias, span in zip(query.aliases, spans, strict=True)
    }


def choose_join_order(sizes: Mapping[str, float], ties: Sequence[Tie]) -> list[str]:
    """Choose the join order of the aliases greedily. Of equal estimates, the first alias is taken.

    Parameters
    ----------
    sizes : mapping of alias to float
        Stored tuples of each stream, up to a common factor. There are at least two streams.
    ties : sequence of (aliases, selectivity)
        The ties of the condition.

    Examples
    --------
    >>> pairs = [("a", "b", 0.3), ("b", "c", 0.1), ("c", "d", 0.1)]
    >>> ties = [(frozenset(pair), share) for *pair, share in pairs]
    >>> choose_join_order(dict.fromkeys("abcd", 60.0), ties)
    ['b', 'c', 'd', 'a']
    """
    first = min(
        combinations(sizes, 2),
        key=lambda pair: (
            _estimate_growth(sizes, ties, [], pair[0]) * _estimate_growth(sizes, ties, pair[:1], pair[1])
        ),
    )
    return extend_join_order(first, sizes, ties)


def extend_join_order(first: Sequence[str], sizes: Mapping[str, float], ties: Sequence[Tie]) -> list[str]:
    """Choose the join order of the aliases if it begins with ``first``.

    >>> extend_join_order(["c"], dict.fromkeys("abc", 60.0), [(frozenset("ab"), 0.1), (frozenset("bc"), 0.3)])
    ['c', 'b', 'a']
    """
    order, rest = list(first), [alias for alias in sizes if alias not in first]
    while rest:
        order.append(min(rest, key=lambda alias: _estimate_growth(sizes, ties, order, alias)))
        rest.remove(order[-1])
    return order


def _estimate_growth(
    sizes: Mapping[str, float], ties: Sequence[Tie], taken: Sequence[str], alias: str
) -> float:
    known = {*taken, alias}
    return sizes[alias] * prod(share for read, share in ties if alias in read and read <= known)
