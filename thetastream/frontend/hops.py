"""What the user said of hops: the order per stream."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from thetastream.errors import QueryError, ThetastreamError
from thetastream.joiner.graph import JoinGraph
from thetastream.joiner.refine import Refinement
from thetastream.models.multiway import Multiway, Travel
from thetastream.plan.order import Tie, continued
from thetastream.plan.ring import Orders


class HopOrders(NamedTuple):
    """Per stream the others in the order in which its tuples look for partners."""

    orders: Orders
    is_set: tuple[bool, ...]
    """Which of them the user set; the others are estimated."""


def read_orders(
    model: Multiway,
    sizes: Mapping[str, float],
    ties: Sequence[Tie],
    problems: list[ThetastreamError],
) -> HopOrders:
    """Orders as the model has them, else by estimated selectivity."""
    aliases = list(sizes)
    folded = [alias.casefold() for alias in aliases]
    given = model.order or {}
    wanted = {str(alias).casefold(): order for alias, order in given.items()}
    problems += [
        QueryError("BAD_HOPS", f"order names {alias!r}, which is not one of {', '.join(aliases)}")
        for alias in wanted
        if alias not in folded
    ]
    if len(wanted) < len(given):
        problems.append(
            QueryError("BAD_HOPS", f"order must name a stream once; it names {', '.join(map(str, given))}")
        )
    orders = []
    for alias in aliases:
        others = [other for other in aliases if other != alias]
        asked = wanted.get(alias.casefold(), continued([alias], sizes, ties)[1:])
        is_list = isinstance(asked, list | tuple)
        order = [str(other).casefold() for other in asked] if is_list else []
        if sorted(order) != sorted(map(str.casefold, others)):
            problems.append(
                QueryError(
                    "BAD_HOPS",
                    f"order of {alias!r} must list each of {', '.join(others)} once, not {asked!r}",
                )
            )
            order = [other.casefold() for other in others]
        orders.append(tuple(folded.index(other) for other in order))
    return HopOrders(tuple(orders), tuple(alias in wanted for alias in folded))


def refinement(
    model: Multiway, graph: JoinGraph, is_set: Sequence[bool], ties: Sequence[Tie]
) -> Refinement | None:
    """Which orders follow what is measured: those nobody set, where all nodes see all partial results."""
    if not model.has_mailbox(len(graph.sides)) or model.travel is not Travel.ALL or all(is_set):
        return None
    numbers = {side.alias: n for n, side in enumerate(graph.sides)}
    read = [(sum(1 << numbers[alias] for alias in aliases), share) for aliases, share in ties]
    return Refinement(
        tuple(not each for each in is_set),
        tuple((streams, share) for streams, share in read if streams.bit_count() > 1),
        tuple(graph.lifetime_us(stream) for stream in range(len(graph.sides))),
    )
