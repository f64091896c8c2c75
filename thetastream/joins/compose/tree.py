"""Chooses the tree of joins of a pipeline: the cheapest left-deep tree, or a bushy one that costs far less.

    R(S) = product of the selectivities in S * sum over j in S of r_j * product over i != j of r_i W_i
    cost of a tree = sum over the inputs S of all its joins of R(S) * (1 + W(S))

R(S) is the results per second of a set S of streams. The latest tuple of a result comes from one stream j,
and the tuples of the other streams i are in their windows W_i. A join stores its input S for W(S), the
shortest window of the streams in S. So the cost of S is the number of its stored rows, R(S) W(S), and of its
rows that cross the exchange in a second, R(S). In each tree, a stream is an input of one join, so trees
differ only in their intermediate results.

The number of partners of a tuple decides which tree is cheaper. Defaults do not know this number, so trees
are compared only by known rates of results. A bushy tree must cost less than half of the cheapest left-deep
tree, because conditions are assumed to be independent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from thetastream.lowering.selectivity import Tie

JoinTree: TypeAlias = "str | tuple[JoinTree, JoinTree]"
"""An alias, or the trees of the left and the right input of a join."""
MARGIN = 2.0
"""How many times the cost of a bushy tree the cheapest left-deep tree must cost."""
MOST_STREAMS = 10
"""The number of streams up to which trees are compared. Ten streams have 28,501 pairs of inputs."""


@dataclass(frozen=True)
class StreamWindow:
    """The tuples per second of a stream, and the seconds of its window."""

    rate: float
    window_s: float


def estimate_results(flows: Sequence[StreamWindow], share: float = 1.0) -> float:
    """Estimate the results per second of these streams. ``share`` is the selectivity of all their conditions.

    >>> estimate_results([StreamWindow(10, 4), StreamWindow(2, 3)], 0.5)
    70.0
    """
    return share * sum(
        last.rate * prod(flow.rate * flow.window_s for n, flow in enumerate(flows) if n != latest)
        for latest, last in enumerate(flows)
    )


def solve_ties(
    ties: Sequence[Tie], flows: Mapping[str, StreamWindow], results: Mapping[frozenset[str], float]
) -> list[Tie] | None:
    """Return one tie for each set of streams that conditions compare, with its selectivity from known rates.

    A known rate of results gives the selectivity of a set if all others inside these results are known. None
    is returned if a selectivity stays unknown. Conditions on one stream keep their estimates: the
    selectivities of the sets with this stream make up for the difference.

    >>> flows = dict.fromkeys("abc", StreamWindow(10, 1))
    >>> solve_ties([(frozenset("ab"), 0.1), (frozenset("bc"), 0.1)], flows, {frozenset("ab"): 20.0})
    >>> rates = {frozenset("ab"): 20.0, frozenset("abc"): 60.0}
    >>> [share for _, share in solve_ties([(frozenset("ab"), 0.1), (frozenset("bc"), 0.1)], flows, rates)]
    [0.1, 0.2]
    """
    known: dict[frozenset[str], float] = {}
    for read, share in ties:
        if len(read) < 2:
            known[read] = known.get(read, 1.0) * share
    unknown = {read for read, _ in ties} - set(known)
    while unknown:
        solved = {}
        for streams, rate in results.items():
            inside = [read for read in unknown if read <= streams]
            passing = prod(share for read, share in known.items() if read <= streams)
            most = estimate_results([flows[alias] for alias in sorted(streams)], passing)
            if len(inside) == 1 and most > 0:
                solved[inside[0]] = rate / most
        if not solved:
            return None
        known |= solved
        unknown -= set(solved)
    return list(known.items())


def choose_join_tree(
    order: Sequence[str], flows: Mapping[str, StreamWindow], ties: Sequence[Tie]
) -> "JoinTree | None":
    """Choose the cheapest left-deep tree, or a bushy tree if it costs clearly less than every left-deep tree.

    Return None for more than ``MOST_STREAMS`` streams, because their trees are not compared.

    Parameters
    ----------
    order : sequence of str
        The aliases. Of left-deep trees that cost the same, the one in this order is taken.
    flows : mapping of alias to StreamWindow
        Rates and windows.
    ties : sequence of (aliases, selectivity)
        The known ties of the condition.

    Examples
    --------
    >>> flows = dict.fromkeys("abcd", StreamWindow(100, 10))
    >>> chain = [(frozenset("ab"), 1e-4), (frozenset("bc"), 0.1), (frozenset("cd"), 1e-4)]
    >>> choose_join_tree("abcd", flows, chain)
    (('a', 'b'), ('c', 'd'))
    >>> choose_join_tree("abcd", flows, [(tie, 1e-4) for tie, _ in chain])
    ((('a', 'b'), 'c'), 'd')
    """
    if len(order) > MOST_STREAMS:
        return None
    costs = _Costs(order, flows, ties)
    cost, tree = costs.find_cheapest(is_left_deep=False)
    least, left_deep = costs.find_cheapest(is_left_deep=True)
    return tree if cost * MARGIN < least else left_deep


def build_left_deep(order: Sequence[str]) -> JoinTree:
    """Build the tree that joins one stream after the other.

    >>> build_left_deep("abc")
    (('a', 'b'), 'c')
    """
    tree: JoinTree = order[0]
    for alias in order[1:]:
        tree = (tree, alias)
    return tree


def is_bushy(tree: JoinTree) -> bool:
    """Whether a join of the tree joins two results.

    >>> is_bushy((("a", "b"), ("c", "d"))), is_bushy(build_left_deep("abcd"))
    (True, False)
    """
    if isinstance(tree, str):
        return False
    left, right = tree
    return not (isinstance(left, str) or isinstance(right, str)) or is_bushy(left) or is_bushy(right)


class _Costs:
    """The cost of each set of streams as an input. A set is a number with a bit for each stream."""

    def __init__(self, order: Sequence[str], flows: Mapping[str, StreamWindow], ties: Sequence[Tie]) -> None:
        self._order = order
        bits = {alias: 1 << n for n, alias in enumerate(order)}
        shares = [(sum(bits[alias] for alias in read), share) for read, share in ties]
        self._inputs = {}
        for streams in range(1, 1 << len(order)):
            inside = [flows[alias] for alias in order if streams & bits[alias]]
            passing = prod(share for read, share in shares if read & streams == read)
            stay_s = 1 + min(flow.window_s for flow in inside)
            self._inputs[streams] = estimate_results(inside, passing) * stay_s

    def find_cheapest(self, is_left_deep: bool) -> tuple[float, JoinTree]:
        """Find the tree with the least cost, of all trees or of left-deep trees."""
        best: dict[int, tuple[float, JoinTree]] = {
            1 << n: (0.0, alias) for n, alias in enumerate(self._order)
        }
        for streams in self._inputs:
            if streams not in best:
                found = [
                    (best[left][0] + best[right][0] + self._inputs[left] + self._inputs[right], left, right)
                    for left, right in _split(streams)
                    if not is_left_deep or right.bit_count() == 1
                ]
                cost, left, right = min(found, key=lambda split: split[0])
                best[streams] = cost, (best[left][1], best[right][1])
        return best[max(best)]


def _split(streams: int) -> list[tuple[int, int]]:
    """List the pairs of inputs that make up the streams.

    The first input of a pair has more streams. Of two inputs that have equally many, it has the first stream.
    """
    pairs = []
    part = streams & (streams - 1)
    while part:
        other = streams ^ part
        n, m = other.bit_count(), part.bit_count()
        if n > m or (n == m and other & -other < part & -part):
            pairs.append((other, part))
        part = (part - 1) & streams
    return pairs
