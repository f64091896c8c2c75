"""From the condition of an m-way join to the hops of the ring: orders, and an index per stream.

A stream's tuples are stored once, so they have one index, though several hops may ask for them by different
keys: it is the one that serves the strongest of these conditions; a hop that cannot use it scans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from thetastream.condition import Condition, IndexSpec
from thetastream.joiner.box import Plan
from thetastream.joiner.chain import ChainSpec
from thetastream.joiner.graph import JoinGraph
from thetastream.joiner.hop import condition_of, usable
from thetastream.joiner.refine import Refinement
from thetastream.joiner.ring import RingSpec
from thetastream.models.multiway import Multiway
from thetastream.plan.lower import archive_period, choose_index
from thetastream.types import Side

Orders = tuple[tuple[int, ...], ...]
STRENGTH = ("scan", "sorted", "grid", "hash", "hash_sorted")
"""Index shapes, the one that leaves fewest candidates last."""


def ring_spec(
    graph: JoinGraph,
    orders: Orders,
    model: Multiway,
    archive_period_us: int | None = None,
    refinement: Refinement | None = None,
) -> RingSpec:
    """What the nodes run.

    Parameters
    ----------
    graph : JoinGraph
    orders : tuple of tuples of int
        Per stream the others, in the order in which a tuple of it looks for partners.
    model : Multiway
    archive_period_us : int, optional
        Event time of a subindex; a tenth of how long a stream's tuples are kept when left out.
    refinement : Refinement, optional
        Which orders follow what is measured; none when left out. Indexes are those of the planned orders.
    """
    asked = list(dict.fromkeys(hops_of(orders)))
    plans = [
        stored_plan([condition_of(graph, members, target) for members, target in asked if target == stream])
        for stream in range(len(orders))
    ]
    chains = []
    for stream, plan in enumerate(plans):
        lifetime = graph.lifetime_us(stream)
        period = None
        if lifetime is not None:
            period = archive_period_us or archive_period([lifetime], None)
        numbers = range(stream * model.n_parts, (stream + 1) * model.n_parts)
        chains += [ChainSpec(number, plan, period, lifetime) for number in numbers]
    reach = tuple(graph.reach(stream) for stream in range(len(orders)))
    return RingSpec(graph, orders, tuple(chains), model, reach, refinement)


def hops_of(orders: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], int]]:
    """(members, target) of every hop, the first hops of all streams first.

    >>> list(hops_of(((1, 2), (0, 2), (1, 0))))
    [((0,), 1), ((1,), 0), ((2,), 1), ((0, 1), 2), ((0, 1), 2), ((1, 2), 0)]
    """
    for n in range(len(orders) - 1):
        for origin, order in enumerate(orders):
            yield tuple(sorted((origin, *order[:n]))), order[n]


def stored_plan(conditions: Sequence[Condition]) -> Plan:
    """The index of a stream's tuples that serves the strongest condition, then the most of them."""
    found = [Plan(condition, Side.RIGHT, _index(condition)) for condition in conditions]

    def worth(plan: Plan) -> tuple[int, int]:
        served = sum(usable(plan, condition).kind == plan.index.kind for condition in conditions)
        return STRENGTH.index(plan.index.kind), served

    return max(found, key=worth)


def _index(condition: Condition) -> IndexSpec:
    # The last dimension is the global order, which rules out next to nothing.
    return choose_index(replace(condition, dimensions=condition.dimensions[:-1]))[0]
