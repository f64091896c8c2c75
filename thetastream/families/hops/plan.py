"""Plans joins of any number of streams hop by hop: Ring, ATR and CTR (aligned, coordinated tuple routing).

{ (t1, ..., tm) : condition is TRUE, T - ti <= Wi for the latest event time T }

No intermediate result is stored. Each tuple is stored once, at the node of its slice
(``thetastream.engine.multiway``). Batch DataFrames have no epochs in which messages could arrive. For them,
joins of two streams compute the same bag of results; under count windows, one node makes all hops in one
epoch.

The hop order of each stream: the one that the user set, or an estimated one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from pyspark.sql import DataFrame

from thetastream.core.columns import ColumnSource
from thetastream.core.errors import QueryError
from thetastream.engine.multiway.graph import JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.families.asked import CheckedRequest, check_max_units, refuse_result_order
from thetastream.families.hops.cost import MultiwayLoad, choose_initial_slice, estimate_load
from thetastream.families.hops.explain import explain_multiway
from thetastream.families.hops.graph import HopOrders, LoweredGraph, build_multiway_spec, lower_graph
from thetastream.families.hops.identity import identify_multiway
from thetastream.families.pairs.choose import find_shed_problem
from thetastream.families.pairs.flow import Choose, _open_choice, describe_pairs
from thetastream.families.windows import read_count_windows
from thetastream.joins.plan import QueryPlan
from thetastream.lowering.identity import Reading
from thetastream.lowering.lower import choose_archive_period
from thetastream.lowering.query import Query
from thetastream.lowering.report import Section
from thetastream.lowering.selectivity import Tie, estimate_sizes, extend_join_order, list_ties
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models.base import Model
from thetastream.models.multiway import Multiway, Travel, read_hops
from thetastream.runtime.context import RunContext
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Emitted, Flow, Staging, Target, UnitStage
from thetastream.spark.dataflow.build import build


@dataclass(frozen=True, repr=False)
class MultiwayPlan(QueryPlan):
    """A join hop by hop that is checked and planned but not started."""

    query: Query
    lowered: LoweredGraph
    spec: MultiwaySpec
    """The spec that the nodes run."""
    streams: tuple[DataFrame, ...]
    run: RunContext
    reading: Reading
    load: MultiwayLoad
    """The estimated load of the nodes."""
    choose: Callable[[int], Model] | None = None
    """How the model follows from the number of shuffle partitions; None if the user gave the nodes."""

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.spec.model,)

    @property
    def is_prompt(self) -> bool:
        return self.spec.model.is_prompt(len(self.inputs))

    @property
    def folding_obstacle(self) -> str:
        return "the matches of a join hop by hop are not folded"

    def explain_join(self) -> tuple[Section, ...]:
        query = self.query
        return explain_multiway(
            query.streams,
            query.on,
            query.within_us,
            self.lowered,
            self.spec,
            self.run.mailbox,
            self.load,
            self.run.shed,
        )

    @property
    def staging_obstacle(self) -> str | None:
        residual = self.lowered.residual
        return f"Spark evaluates {residual[0]}" if residual else None

    @property
    def emitted(self) -> Emitted:
        return Emitted(self.lowered.sides, self.event_times if self.has_result_time else {})

    def stage_results(self, target: Target, sources: tuple[ColumnSource, ...]) -> DataFrame:
        columns = tuple(carried.block_column for side in self.lowered.sides for carried in side.carried)
        return self._build(Staging(target, columns, sources))

    def results(self) -> DataFrame:
        return self._build()

    def _build(self, staging: Staging | None = None) -> DataFrame:
        flow = build_multiway_join(self.lowered, self.spec, self.reading, self.choose)
        return build(replace(flow, rules=self._rules), self.streams, self.run, staging)

    @property
    def _rules(self) -> Rules | None:
        """How the nodes may change while the join runs; None if they do not change."""
        if self.run.max_units is None:
            return None
        is_endless = any(stored.lifetime_us is None for stored in self.spec.stored)
        return Rules(
            self.run.max_units,
            never_expires=(is_endless, is_endless),
            can_shed=self.run.shed is not None,
            only_sizes=True,
            moves_tuples=self.spec.model.can_move_tuples,
        )


def check_multiway(checked: CheckedRequest) -> tuple[int, ...] | None:
    """Add errors for what hops do not support, and return the sizes of count windows."""
    options, problems = checked.options, checked.problems
    model = cast(Multiway, checked.model)  # only these models name this planner
    refuse_result_order(checked)
    counts = read_count_windows(checked)
    if counts is not None and not model.keeps_arrival_order:
        what = f"a count window needs the order of arrival, which {model!r} does not keep"
        hint = "use th.Split(cores) for two streams, th.Ring(nodes) for more, or leave model out"
        problems.append(QueryError("COUNT_WINDOW", f"{what}; {hint}"))
    if "index" in options:
        what = "hops share the index of a stream, which is chosen for the strongest of their conditions"
        problems.append(QueryError("INDEX_NOT_APPLICABLE", f"{what}; leave index out"))
    return counts


def plan_multiway(checked: CheckedRequest, counts: tuple[int, ...] | None) -> MultiwayPlan:
    """Plan a join hop by hop. ``counts`` are the sizes of count windows."""
    # 1. Check the session.
    request, options, problems = checked.request, checked.options, checked.problems
    model = cast(Multiway, checked.model)
    mailbox, max_units, has_open_size = "", None, False
    if checked.is_streaming:
        has_open_size = checked.has_open_size
        problems += checked.session.find_problems(model.n_units)
        max_units = options.get("max_units")
        check_max_units(max_units, model, problems)
        has_mailbox = model.has_mailbox(len(checked.streams))
        if has_mailbox or checked.run.shed is not None or max_units is not None:
            mailbox = checked.session.choose_mailbox_folder(options.get("mailbox"), problems)
    else:
        model = model.on_one_node
    unfit = find_shed_problem(checked.run.shed, model)
    problems += [] if unfit is None else [unfit]
    query = checked.query(counts)
    # 2. Turn the condition into hops, and choose an index for the hops.
    lowered = lower_graph(
        query.streams, query.conjuncts, query.predicates, query.within_us, checked.catalyst, counts
    )
    graph, ties = lowered.graph, list_ties(query)
    hops = choose_hop_orders(model, query, checked.statistics)
    load = estimate_load(query.streams, graph, hops.orders, ties, checked.statistics or Statistics())
    sizes = _NodesChoice(model, load, has_open_size, checked.statistics is not None)
    model = sizes(checked.partitions)
    lifetimes_us = [] if counts is not None else map(graph.lifetime_us, range(len(query.streams)))
    choose_archive_period(lifetimes_us, checked.archive_period_us)
    refinement = choose_refinement(model, graph, hops.is_set, ties)
    spec = build_multiway_spec(graph, hops.orders, model, checked.archive_period_us, refinement)
    frames = tuple(request.streams.values())
    choose = sizes if has_open_size else None
    run = replace(checked.run, mailbox=mailbox, max_units=max_units)
    reading = Reading(checked.catalyst.is_case_sensitive, None if choose is None else checked.partitions)
    return MultiwayPlan(query, lowered, spec, frames, run, reading, load, choose)


@dataclass(frozen=True)
class _NodesChoice:
    """The cheapest number of nodes and the initial slice size, where the user left them open. Picklable."""

    model: Multiway
    load: MultiwayLoad
    has_open_size: bool
    has_statistics: bool

    def __call__(self, partitions: int) -> Multiway:
        """Choose the sizes for a number of shuffle partitions."""
        model = self.model
        if self.has_open_size:
            model = model.with_nodes(self.load.optimal_length(choose_n_units(partitions)))
        if self.has_statistics:
            model = model.with_slices(choose_initial_slice(min(self.load.held), model.n_units))
        return model


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


def build_multiway_join(
    plan: LoweredGraph, spec: MultiwaySpec, reading: Reading, choose: Choose | None = None
) -> Flow:
    """Join two or more streams, hop by hop. ``choose`` is given if the planner has chosen the nodes."""
    output = describe_pairs(plan.sides, plan.residual)
    stage = UnitStage(spec, output, _open_choice(reading, choose, spec.with_model))
    return Flow(plan.sides, spec.graph.sides, (stage,), identify_multiway(plan, spec, reading))
