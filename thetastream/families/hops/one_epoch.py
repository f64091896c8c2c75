"""Decides whether a ring makes all hops of a tuple in one epoch, and which stream its nodes then store once.

With the mailbox, every tuple is stored once, and a hop costs an epoch. In one epoch, one stream is stored
once, and all N nodes store the tuples of the others. Let held(j) be the stored tuples of stream j:

    copies(i) = (held(i) + N * sum of held(j), j not i) / sum of all held(j)

Until a tuple of another stream has been joined with stream i, all nodes make its comparisons. Afterwards each
node makes a share of them. So the best stream i is one that tuples of the others visit first. Ties of the
condition say which these are: on a path a - b - c, it is b. Of several good ones, it is the stream with the
most stored tuples, because copies of the others are fewest.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from thetastream.core.errors import QueryError
from thetastream.lowering.selectivity import Tie, extend_join_order
from thetastream.models.base import AUTO
from thetastream.models.ring import EPOCH, MAILBOX, Ring

MOST_COPIES = 2.5
"""The largest number of copies of a tuple, on average, that the planner chooses to save epochs."""
MOST_COMPARISONS = 1.25
"""The largest number of comparisons of a node that the planner chooses, divided by an even share, or by the
number with the best stream."""


class HopsDecision(NamedTuple):
    """Where the nodes of a ring make hops, and why."""

    stored_once: int | None
    """The stream whose tuples are stored once, if all hops end in one epoch. None with the mailbox."""
    why: str


class Sizes(NamedTuple):
    """What an estimate needs to know of each stream, by alias."""

    rates: dict[str, float]
    """Tuples per second, up to a common factor."""
    held: dict[str, float]
    """Stored tuples of all nodes, without copies."""
    ties: Sequence[Tie]
    """The aliases and the selectivity of each conjunct."""


def find_obstacle(ring: Ring, max_units: int | None) -> str | None:
    """Return why the hops of a ring cannot end in one epoch, as a clause; None if they can."""
    if ring.in_flight is not None:
        return "in_flight lets tuples wait for a later epoch"
    if max_units is not None:
        return "the nodes may change while the query runs (max_units)"
    return None


def find_hops_problems(ring: Ring, max_units: int | None) -> list[QueryError]:
    """Return an error if the user asks for one epoch and the hops of the ring cannot end in one."""
    obstacle = find_obstacle(ring, max_units)
    if ring.hops != EPOCH or obstacle is None:
        return []
    return [QueryError("BAD_HOPS", f'hops="epoch" is not possible, because {obstacle}; leave hops out')]


def decide(ring: Ring, max_units: int | None, sizes: Sizes) -> HopsDecision:
    """Decide where the nodes of a ring make hops.

    Examples
    --------
    >>> tuples = dict.fromkeys("abc", 60.0)
    >>> sizes = Sizes(tuples, tuples, [(frozenset("ab"), 0.1), (frozenset("bc"), 0.1)])
    >>> decide(Ring(2), None, sizes)
    HopsDecision(stored_once=1, why='all nodes store a and c: 1.7 copies of a tuple')
    >>> decide(Ring(8), None, sizes)
    HopsDecision(stored_once=None, why='in one epoch, nodes would store 5.7 copies of a tuple')
    """
    if ring.hops == MAILBOX:
        return HopsDecision(None, 'hops="mailbox" is set')
    obstacle = find_obstacle(ring, max_units)
    if obstacle is not None:
        return HopsDecision(None, obstacle)
    aliases, nodes = list(sizes.held), ring.n_units
    work = [estimate_comparisons(alias, nodes, sizes) for alias in aliases]
    good = [n for n, compared in enumerate(work) if compared <= MOST_COMPARISONS * min(work)]
    best = min(good, key=lambda n: (-sizes.held[aliases[n]], work[n]))
    held = sum(sizes.held.values())
    copies = nodes - (nodes - 1) * sizes.held[aliases[best]] / held
    if ring.hops == AUTO and copies > MOST_COPIES:
        return HopsDecision(None, f"in one epoch, nodes would store {copies:.1f} copies of a tuple")
    even = estimate_comparisons(None, 1, sizes) / nodes
    if ring.hops == AUTO and work[best] > MOST_COMPARISONS * even:
        times = work[best] / even
        return HopsDecision(
            None, f"in one epoch, a node would make {times:.1f} times its share of comparisons"
        )
    others = " and ".join(alias for n, alias in enumerate(aliases) if n != best)
    return HopsDecision(best, f"all nodes store {others}: {copies:.1f} copies of a tuple")


def estimate_comparisons(stored_once: str | None, nodes: int, sizes: Sizes) -> float:
    """Estimate the comparisons of one node per second, if it stores a share of one stream, up to a factor.

    >>> tuples = dict.fromkeys("abc", 10.0)
    >>> sizes = Sizes(tuples, tuples, [(frozenset("ab"), 0.1), (frozenset("bc"), 0.1)])
    >>> [estimate_comparisons(alias, 2, sizes) for alias in "abc"]
    [350.0, 300.0, 350.0]
    """
    shares = {alias: 1 / nodes if alias == stored_once else 1.0 for alias in sizes.held}
    held = {alias: n * shares[alias] for alias, n in sizes.held.items()}
    total = 0.0
    for origin, rate in sizes.rates.items():
        found, known = rate * shares[origin], {origin}
        for target in extend_join_order([origin], held, sizes.ties)[1:]:
            known.add(target)
            compared = found * held[target]
            found = compared * prod(share for read, share in sizes.ties if target in read and read <= known)
            total += compared
    return total
