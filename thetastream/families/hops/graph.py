"""Lowers an m-way query to its join graph: each conjunct goes to the pair of streams that it ties.

reads one stream           -> filter before routing; under count windows, the nodes filter
reads two streams          -> rewritten as in a join of two (``thetastream.lowering.rewrite``), on their edge
reads more than two        -> residual, a filter behind the join

Builds the spec of a multiway join from its graph: hop orders, and an index per stream.

A stream's tuples are stored once, so they have one index. Several hops may search them by different keys. The
index is the one for the strongest condition of these hops. A hop that cannot use the index scans.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from thetastream.conditions import Phrase, Predicate
from thetastream.conditions.names import find_references
from thetastream.core.condition import SUBINDEXES_PER_WINDOW, Condition, Equality
from thetastream.core.sides import Side
from thetastream.engine.multiway.graph import Edge, Ends, GraphPredicate, JoinGraph
from thetastream.engine.multiway.hop import adapt_index, build_hop_condition, find_window_us
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.store.box import IndexPlan, StoredStream
from thetastream.index.base import IndexSpec
from thetastream.lowering.conjunct import Note, Rewritten
from thetastream.lowering.dimensions import build_dimensions, find_window_ends
from thetastream.lowering.domains import quote
from thetastream.lowering.event_time import write_elapsed_time
from thetastream.lowering.lower import (
    build_side_spec,
    choose_archive_period,
    choose_index,
    compute_sign,
    guard_computed,
    remove_event_times,
)
from thetastream.lowering.physical import Filter, SidePlan
from thetastream.lowering.query import (
    Query,
    Resolver,
    Stream,
    find_type,
    list_conditions,
    warn_of_cross_join,
    warn_of_unbounded_state,
)
from thetastream.lowering.rewrite import cast_to_boolean, rewrite
from thetastream.lowering.side_keys import SideKeys
from thetastream.models.multiway import Multiway


@dataclass(frozen=True)
class LoweredGraph:
    """A lowered m-way query: the plan of each stream, the join graph, and the conjuncts left to Catalyst."""

    sides: tuple[SidePlan, ...]
    graph: JoinGraph
    residual: tuple[str, ...]
    notes: tuple[Note, ...]
    on: tuple[str, ...] = ()
    """The condition as the user wrote it, for messages."""


def lower_graph(
    streams: Sequence[Stream],
    conjuncts: Sequence[Phrase],
    predicates: Sequence[Predicate],
    within_us: Sequence[int] | None,
    resolver: Resolver,
    counts: tuple[int, ...] | None = None,
) -> LoweredGraph:
    """Lower an m-way query to filters, keys, edges and residuals. ``counts`` are the sizes of count
    windows."""
    aliases = [stream.alias for stream in streams]
    keys = [SideKeys(stream, resolver, f"k{n}_") for n, stream in enumerate(streams)]
    filters: list[list[Filter]] = [[] for _ in streams]
    residual: list[str] = []
    notes: list[Note] = []
    edges: dict[tuple[int, int], Edge] = {}
    # 1. Assign conjuncts to pairs of streams.
    ties = _assign_to_pairs(conjuncts, aliases)
    for (left, right), phrases in ties.items():
        pair = (streams[left], streams[right])
        spans = None if within_us is None else (within_us[left], within_us[right])
        query = Query(pair, (), tuple(phrases), (), spans)
        query = query if counts is None else remove_event_times(query)
        found = rewrite(query, resolver, (keys[left], keys[right]), has_measures=False)
        for number, own in zip((left, right), found.filters, strict=True):
            filters[number] += own
        residual += found.residual
        notes += found.notes
        edges[left, right] = _build_edge(query, found, filters[left])
    # 2. Keep conjuncts of more than two streams as residuals.
    for phrase in conjuncts:
        if len(find_references(phrase, aliases)) > 2:
            type_ = resolver.type_of(phrase.text, aliases) or "boolean"
            residual.append(cast_to_boolean(write_elapsed_time(phrase, aliases, resolver), type_))
            notes.append(Note(phrase.text, "residual", "reads more than two streams"))
    for side in keys:
        side.sort_computed()
    graph = JoinGraph(
        tuple(build_side_spec(stream, side) for stream, side in zip(streams, keys, strict=True)),
        edges,
        _build_predicates(predicates, streams, resolver),
        counts,
    )
    _warn_of_cross_joins(conjuncts, graph, aliases)
    warn_of_unbounded_state(streams, [graph.lifetime_us(number) for number in range(len(streams))])
    # 3. Plan what each stream computes.
    sides = []
    for n, (stream, side) in enumerate(zip(streams, keys, strict=True)):
        own = [*filters[n], *side.not_null]
        if any(graph.edge(n, other).window != Ends() for other in range(len(streams)) if other != n):
            own.append(Filter.require(f"{quote(stream.alias)}.{quote(stream.event_time or '')}"))
        own = list(dict.fromkeys(own))
        computed = [(column, text) for text, column in side.computed.items()]
        if counts is not None and own:
            # The window counts the tuples that fail a filter too.
            computed, own = guard_computed(own, computed), []
        computed += compute_sign(stream)
        sides.append(SidePlan(stream.alias, tuple(own), tuple(computed), stream.carried))
    on = list_conditions([phrase.text for phrase in conjuncts], predicates)
    return LoweredGraph(tuple(sides), graph, tuple(residual), tuple(notes), on)


def _assign_to_pairs(
    conjuncts: Sequence[Phrase], aliases: Sequence[str]
) -> Mapping[tuple[int, int], list[Phrase]]:
    """Return the conjuncts of every pair.

    A conjunct of one stream or none goes to the first pair that has it.
    """
    pairs: dict[tuple[int, int], list[Phrase]] = {pair: [] for pair in combinations(range(len(aliases)), 2)}
    for phrase in conjuncts:
        read = {aliases.index(alias) for alias in find_references(phrase, list(aliases))}
        if len(read) <= 2:
            next(found for pair, found in pairs.items() if read <= {*pair}).append(phrase)
    return pairs


def _build_edge(query: Query, rewritten: Rewritten, left_filters: list[Filter]) -> Edge:
    low, high = find_window_ends(query, rewritten)
    if low is not None and high is not None and low > high:
        left_filters.append(Filter("false"))
        high = low
    return Edge(
        tuple(Equality(left, right, text) for left, right, text in rewritten.equalities),
        build_dimensions(rewritten),
        Ends(low, high),
        tuple(rewritten.same),
    )


def _build_predicates(
    predicates: Sequence[Predicate], streams: Sequence[Stream], resolver: Resolver
) -> tuple[GraphPredicate, ...]:
    numbers = {stream.alias.casefold(): n for n, stream in enumerate(streams)}
    found = []
    for predicate in predicates:
        read = []
        for alias, names in predicate.columns:
            stream = streams[numbers[alias.casefold()]]
            blocks = {carried.field: carried.block_column for carried in stream.carried}
            columns = {name: stream.find(name, resolver.is_case_sensitive) for name in names}
            pairs = tuple((name, blocks[column]) for name, column in columns.items() if column is not None)
            read.append((numbers[alias.casefold()], alias, pairs))
        call = predicate.adapt(lambda alias, name: find_type(streams, alias, name, resolver) == "timestamp")
        found.append(
            GraphPredicate(predicate.name, call, tuple(read), predicate.is_encoded, predicate.version)
        )
    return tuple(found)


def _warn_of_cross_joins(conjuncts: Sequence[Phrase], graph: JoinGraph, aliases: Sequence[str]) -> None:
    """Warn of streams that no conjunct ties to the first stream, directly or through other streams."""
    groups = [
        {aliases.index(alias) for alias in find_references(phrase, list(aliases))} for phrase in conjuncts
    ]
    groups += [set(predicate.streams) for predicate in graph.predicates]
    tied, size = {0}, 0
    while len(tied) > size:
        size = len(tied)
        tied.update(n for group in groups if group & tied for n in group)
    apart = [alias for n, alias in enumerate(aliases) if n not in tied]
    if apart:
        warn_of_cross_join(f"no conjunct ties {', '.join(apart)} to {aliases[0]}: all in the window join")


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
