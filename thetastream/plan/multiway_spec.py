"""Builds the spec of a multiway join from its graph: hop orders, and an index per stream.

A stream's tuples are stored once, so they have one index. Several hops may search them by different keys. The
index is the one for the strongest condition of these hops. A hop that cannot use the index scans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from thetastream.core.condition import Condition
from thetastream.core.sides import Side
from thetastream.engine.multiway.graph import JoinGraph
from thetastream.engine.multiway.hop import adapt_index, build_hop_condition, find_window_us
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.store.box import IndexPlan
from thetastream.engine.store.stored_stream import StoredStream
from thetastream.engine.two_stream.query import SUBINDEXES_PER_WINDOW
from thetastream.index.base import IndexSpec
from thetastream.models.multiway import Multiway
from thetastream.plan.index_choice import choose_index
from thetastream.plan.lower import choose_archive_period

HopOrders = tuple[tuple[int, ...], ...]
"""For each stream, the other streams in the order in which its tuples look for partners."""


def build_multiway_spec(
    graph: JoinGraph,
    hop_orders: HopOrders,
    model: Multiway,
    archive_period_us: int | None = None,
    refinement: Refinement | None = None,
) -> MultiwaySpec:
    """Build the spec that the nodes run.

    Parameters
    ----------
    graph : JoinGraph
        The condition of the join.
    hop_orders : tuple of tuples of int
        For each stream, the other streams in the order in which its tuples look for partners.
    model : Multiway
        The model of the join.
    archive_period_us : int, optional
        Event time that a subindex spans. By default, it is a tenth of the lifetime of a stream's tuples.
    refinement : Refinement, optional
        Which hop orders follow measured selectivities. By default, none do. Indexes always serve the planned
        hop orders.
    """
    asked = list(dict.fromkeys(list_hops(hop_orders)))
    plans = []
    for stream in range(len(hop_orders)):
        hops = [members for members, target in asked if target == stream]
        # Time cells are as deep as the longest window of the hops. A hop without a window visits all cells.
        windows = [find_window_us(graph, members, stream) for members in hops]
        window_us = None if None in windows else max(window for window in windows if window is not None)
        plans.append(choose_stored_plan([build_hop_condition(graph, m, stream) for m in hops], window_us))
    stored = []
    for stream, plan in enumerate(plans):
        lifetime = graph.lifetime_us(stream)
        period = None
        if graph.counts is not None:
            period = -(-graph.counts[stream] // SUBINDEXES_PER_WINDOW)
        elif lifetime is not None:
            period = archive_period_us or choose_archive_period([lifetime], None)
        numbers = range(stream * model.n_parts, (stream + 1) * model.n_parts)
        stored += [StoredStream(number, plan, period, lifetime) for number in numbers]
    reach = tuple(graph.reach(stream) for stream in range(len(hop_orders)))
    return MultiwaySpec(graph, hop_orders, tuple(stored), model, reach, refinement)


def list_hops(hop_orders: Sequence[Sequence[int]]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield (members, target) of every hop, the first hops of all streams first.

    >>> list(list_hops(((1, 2), (0, 2), (1, 0))))
    [((0,), 1), ((1,), 0), ((2,), 1), ((0, 1), 2), ((0, 1), 2), ((1, 2), 0)]
    """
    for n in range(len(hop_orders) - 1):
        for origin, order in enumerate(hop_orders):
            yield tuple(sorted((origin, *order[:n]))), order[n]


def choose_stored_plan(conditions: Sequence[Condition], window_us: int | None) -> IndexPlan:
    """Choose the index of a stream's tuples that serves the strongest condition, then the most conditions.

    ``window_us`` is the longest window of the hops; None if a hop has none.
    """
    found = [
        IndexPlan(condition, Side.RIGHT, _choose_index(condition), window_us) for condition in conditions
    ]

    def rank(plan: IndexPlan) -> tuple[int, int]:
        served = sum(adapt_index(plan, condition).shape == plan.index.shape for condition in conditions)
        return plan.index.shape.strength, served

    return max(found, key=rank)


def _choose_index(condition: Condition) -> IndexSpec:
    # The last dimension is the global order of tuples, which excludes almost nothing.
    return choose_index(replace(condition, dimensions=condition.dimensions[:-1]))[0]
