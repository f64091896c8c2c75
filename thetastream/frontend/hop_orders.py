"""The hop order of each stream: the one that the user set, or an estimated one."""

from collections.abc import Sequence
from typing import NamedTuple

from thetastream.engine.multiway.graph import JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.models.multiway import Multiway, Travel, read_hops
from thetastream.plan.join_order import Tie, estimate_sizes, extend_join_order, list_ties
from thetastream.plan.multiway_spec import HopOrders
from thetastream.plan.query import Query
from thetastream.plan.statistics import Statistics


class HopOrderChoice(NamedTuple):
    """The hop order of each stream, and whether the user set it."""

    orders: HopOrders
    is_set: tuple[bool, ...]
    """For each stream, whether the user set its hop order. The other hop orders are estimated."""


def choose_hop_orders(model: Multiway, query: Query, statistics: Statistics | None = None) -> HopOrderChoice:
    """Take the hop orders that the model sets. Estimate the others: the smallest results come first."""
    given = read_hops(model.order, query.aliases, [])
    sizes, ties = estimate_sizes(query, statistics), list_ties(query)
    orders = [
        given.get(n) or tuple(map(query.aliases.index, extend_join_order([alias], sizes, ties)[1:]))
        for n, alias in enumerate(query.aliases)
    ]
    return HopOrderChoice(tuple(orders), tuple(n in given for n in range(len(orders))))


def choose_refinement(
    model: Multiway, graph: JoinGraph, is_set: Sequence[bool], ties: Sequence[Tie]
) -> Refinement | None:
    """Return how hop orders follow measured selectivities at run time, or None if they stay as planned.

    Only hop orders that the user did not set are refined, and only where all nodes receive all partial
    results.
    """
    if not model.has_mailbox(len(graph.sides)) or model.travel is not Travel.ALL or all(is_set):
        return None
    numbers = {side.alias: n for n, side in enumerate(graph.sides)}
    read = [(sum(1 << numbers[alias] for alias in aliases), share) for aliases, share in ties]
    return Refinement(
        tuple(not each for each in is_set),
        tuple((streams, share) for streams, share in read if streams.bit_count() > 1),
        tuple(graph.lifetime_us(stream) for stream in range(len(graph.sides))),
    )
