"""The order in which a pipeline takes its streams in: smallest estimated results first.

    size(R, s) = size(R) * window(s) * product of selectivities of the conjuncts that s completes

Nothing is known of a stream's values before it runs, so selectivities are the defaults of System R
(Selinger et al., SIGMOD 1979, table 1); sizes are windows, at one tuple a second.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

from thetastream.predicate import Phrase

EQUALITY, BAND, INEQUALITY, OTHER = 1 / 10, 1 / 4, 1 / 3, 1 / 3
Tie = tuple[frozenset[str], float]
"""Aliases that a conjunct reads, and its selectivity."""


def selectivity(conjunct: Phrase) -> float:
    """Estimated share of combinations for which a conjunct is true.

    >>> from thetastream.predicate import parse
    >>> [selectivity(parse(text)) for text in ("a.x = b.x", "abs(a.x - b.x) <= 3")]
    [0.1, 0.25]
    """
    kinds = conjunct.bare().kinds
    if "OR" in kinds or "NOT" in kinds:
        return OTHER
    if "EQ" in kinds:
        return EQUALITY
    is_distance = conjunct.bare().tokens[0].keyword == "ABS" and any(kind in kinds for kind in ("LT", "LTE"))
    if "BETWEEN" in kinds or is_distance:
        return BAND
    return INEQUALITY if any(kind in kinds for kind in ("LT", "LTE", "GT", "GTE")) else OTHER


def join_order(sizes: Mapping[str, float], ties: Sequence[Tie]) -> list[str]:
    """Aliases in the order they are joined, greedily; of equal estimates the first one given.

    Parameters
    ----------
    sizes : mapping of alias to float
        Tuples that each stream keeps, up to a factor; at least two streams.
    ties : sequence of (aliases, selectivity)

    Examples
    --------
    >>> pairs = [("a", "b", 0.3), ("b", "c", 0.1), ("c", "d", 0.1)]
    >>> ties = [(frozenset(pair), share) for *pair, share in pairs]
    >>> join_order(dict.fromkeys("abcd", 60.0), ties)
    ['b', 'c', 'd', 'a']
    """

    first = min(
        combinations(sizes, 2),
        key=lambda pair: _growth(sizes, ties, [], pair[0]) * _growth(sizes, ties, pair[:1], pair[1]),
    )
    return continued(first, sizes, ties)


def continued(first: Sequence[str], sizes: Mapping[str, float], ties: Sequence[Tie]) -> list[str]:
    """Aliases in the order they are joined if it begins with ``first``.

    >>> continued(["c"], dict.fromkeys("abc", 60.0), [(frozenset("ab"), 0.1), (frozenset("bc"), 0.3)])
    ['c', 'b', 'a']
    """
    order, rest = list(first), [alias for alias in sizes if alias not in first]
    while rest:
        order.append(min(rest, key=lambda alias: _growth(sizes, ties, order, alias)))
        rest.remove(order[-1])
    return order


def _growth(sizes: Mapping[str, float], ties: Sequence[Tie], taken: Sequence[str], alias: str) -> float:
    known = {*taken, alias}
    return sizes[alias] * prod(share for read, share in ties if alias in read and read <= known)
