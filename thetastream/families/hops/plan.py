"""Plans joins of any number of streams hop by hop: Ring, ATR and CTR (aligned, coordinated tuple routing).

{ (t1, ..., tm) : condition is TRUE, T - ti <= Wi for the latest event time T }

No intermediate result is stored. Each tuple is stored once, at the node of its slice
(``thetastream.engine.multiway``).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, NamedTuple, cast

from thetastream.core.errors import QueryError, raise_problems
from thetastream.engine.multiway.graph import JoinGraph
from thetastream.engine.multiway.selectivities import Refinement
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.families.base import Facts
from thetastream.families.changes import find_hops_problem
from thetastream.families.hops.cost import MultiwayLoad, choose_initial_slice, estimate_load
from thetastream.families.hops.explain import explain_multiway
from thetastream.families.hops.graph import HopOrders, LoweredGraph, build_multiway_spec, lower_graph
from thetastream.families.hops.identity import identify_multiway
from thetastream.families.hops.one_epoch import (
    SizedLoad,
    choose_stored_once,
    find_hops_problems,
    find_reason_against,
)
from thetastream.families.option_values import Objective
from thetastream.families.pairs.choose import Choose, find_semantic_problem, find_shed_problem
from thetastream.families.pairs.flow import describe_pairs, open_choice
from thetastream.families.request import RESULTS_OF_MORE, JoinRequest, Refusal, find_answers_problems
from thetastream.families.result_time import write_result_time
from thetastream.families.windows import is_counted, read_count_windows
from thetastream.lowering.identity import Reading
from thetastream.lowering.lower import choose_archive_period
from thetastream.lowering.query import Query, Stream, list_conditions
from thetastream.lowering.report import Section
from thetastream.lowering.selectivity import Tie, estimate_sizes, extend_join_order, list_ties
from thetastream.lowering.statistics import MOST_CHOSEN, Statistics, choose_n_units
from thetastream.models.base import Model
from thetastream.models.multiway import Multiway, read_hops
from thetastream.models.ring import Ring
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Emitted, Flow, RunContext, UnitStage


@dataclass(frozen=True, repr=False)
class HopsPlan:
    """A join hop by hop."""

    request: JoinRequest
    query: Query
    lowered: LoweredGraph
    spec: MultiwaySpec
    """The spec that the nodes run."""
    load: MultiwayLoad
    """The estimated load of the nodes."""
    choose: Choose | None = None
    """How the model follows from the number of shuffle partitions; None if the user gave the nodes."""
    why_hops: str = ""
    """Why a ring makes all hops in one epoch, or one hop in each epoch."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""
        return self.query.streams

    @property
    def models(self) -> tuple[Model, ...]:
        """The model of the nodes."""
        return (self.spec.model,)

    @property
    def run(self) -> RunContext:
        """The settings with which the nodes run."""
        return self.request.run

    @property
    def facts(self) -> Facts:
        """What the code around the join must know of it."""
        query = self.query
        return Facts(
            condition=" AND ".join(list_conditions(query.on, query.predicates)),
            result_time=write_result_time(query.streams),
            shows_result_time=query.has_result_time,
            has_deletes=any(stream.change_type is not None for stream in query.streams),
            # With a mailbox, a result may be found epochs after its last tuple came.
            is_prompt=not self.spec.has_messages,
            longest_window_us=max(query.within_us or (0,)),
            emitted=self._describe_emitted(),
            final="the matches of a join hop by hop are not folded",
        )

    def _describe_emitted(self) -> Emitted | str:
        if self.lowered.residual:
            return f"Spark evaluates {self.lowered.residual[0]}"
        times = {stream.alias: str(stream.event_time) for stream in self.inputs}
        return Emitted(self.lowered.sides, times if self.query.has_result_time else {})

    def explain(self) -> tuple[Section, ...]:
        """Explain the join, with a section for each stage of the plan."""
        statistics = self.request.statistics or Statistics()
        return explain_multiway(
            self.query, self.lowered, self.spec, self.load, statistics, self.run, self.why_hops
        )

    def flow(self, read: Collection[str] | None = None) -> Flow:
        """Describe how tuples become results. Nodes emit all columns."""
        chosen_for = None if self.choose is None else self.request.partitions
        reading = Reading(self.request.resolver.is_case_sensitive, chosen_for)
        output = describe_pairs(self.lowered.sides, self.lowered.residual)
        stage = UnitStage(self.spec, output, open_choice(reading, self.choose, self.spec.with_model))
        identity = identify_multiway(self.lowered, self.spec, reading)
        return Flow(self.lowered.sides, self.spec.graph.sides, (stage,), identity, self._find_rules())

    def _find_rules(self) -> Rules | None:
        """Find how the nodes may change while the join runs; None if they do not change."""
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


class HopsFamily:
    """Joins of any number of streams under a ring of nodes.

    Batch DataFrames have no epochs in which messages could arrive. For them, joins of two inputs compute the
    same bag of results. Under count windows, one node makes all hops in one epoch.
    """

    refused: ClassVar[Mapping[str, Refusal]] = {
        **RESULTS_OF_MORE,
        "index": Refusal(
            "INDEX_NOT_APPLICABLE",
            "hops share the index of a stream, which is chosen for the strongest of their conditions; leave "
            "index out",
        ),
    }

    def takes(self, request: JoinRequest) -> bool:
        model, n_streams = request.model, len(request.streams)
        if not isinstance(model, Multiway) or (n_streams == 2 and model.runs_on_units):
            return False
        return request.is_streaming or is_counted(request.within)

    def plan(self, request: JoinRequest) -> HopsPlan:
        # 1. Check the windows and the session.
        model = cast(Multiway, request.model)
        counts, problems = _read_windows(request, model)
        has_choice = isinstance(model, Ring) and request.is_streaming and len(request.streams) > 2
        if isinstance(model, Ring) and has_choice:
            problems += find_hops_problems(model, request.options.get("max_units"), counts is not None)
        has_mailbox = not has_choice and model.has_mailbox(len(request.streams))
        request = request.with_problems(problems).prepare_run(has_mailbox)
        if not request.is_streaming:
            model = model.on_one_node
        shed = request.run.shed
        unfit = find_shed_problem(shed, model) or find_semantic_problem(shed, None)
        query = request.with_problems([] if unfit is None else [unfit]).query(counts)
        # 2. Turn the condition into hops.
        lowered = lower_graph(
            query.streams, query.conjuncts, query.predicates, query.within_us, request.resolver, counts
        )
        graph, ties = lowered.graph, list_ties(query)
        unfit = find_hops_problem(model, graph, request.options.get("max_units"))
        raise_problems([] if unfit is None else [unfit])
        hops = choose_hop_orders(model, query, request.statistics)
        statistics = request.statistics or Statistics()
        estimate = partial(estimate_load, query.streams, graph, hops.orders, ties)
        # 3. Choose the nodes, where hops are made, and an index for the hops.
        has_open_size = request.has_open_size and request.is_streaming
        objective = (request.options.get("objective") or "both") if has_open_size else None
        knows_windows = counts is not None or statistics.tuples_per_second is not None
        sizes, why_hops = _NodesChoice(model, estimate(statistics), objective, knows_windows), ""
        if has_choice:
            sizes, why_hops = _choose_hops(sizes, request, estimate)
            if sizes.load.stored_once is None:
                mailbox, found = request.choose_mailbox()
                raise_problems(found)
                request = replace(request, run=replace(request.run, mailbox=mailbox))
        model, load = sizes(request.partitions), sizes.load
        lifetimes_us = [] if counts is not None else map(graph.lifetime_us, range(len(query.streams)))
        choose_archive_period(lifetimes_us, request.archive_period_us)
        refinement = choose_refinement(model, graph, hops.is_set, ties)
        spec = build_multiway_spec(graph, hops.orders, model, request.archive_period_us, refinement)
        choose = sizes if has_open_size else None
        return HopsPlan(request, query, lowered, spec, load, choose, why_hops)


HOPS = HopsFamily()


def _read_windows(request: JoinRequest, model: Multiway) -> tuple[tuple[int, ...] | None, list[QueryError]]:
    """Read the sizes of count windows, and list what hops do not support."""
    counts, found = read_count_windows(request)
    problems = [*find_answers_problems(request.how), *found]
    if counts is not None and not model.keeps_arrival_order:
        what = f"a count window needs the order of arrival, which {model!r} does not keep"
        hint = "use th.Split(cores) for two streams, th.Ring(nodes) for more, or leave model out"
        problems.append(QueryError("COUNT_WINDOW", f"{what}; {hint}"))
    return counts, problems


@dataclass(frozen=True)
class _NodesChoice:
    """The cheapest number of nodes and the initial slice size, where the user left them open. Picklable."""

    model: Multiway
    load: MultiwayLoad
    objective: Objective | None
    """What the number of nodes is chosen for; None if the user gave the number."""
    knows_windows: bool
    """Whether the number of stored tuples is known."""

    def estimate_longest(self) -> SizedLoad:
        """Return the load and the largest number of nodes that is chosen for any number of partitions.

        A query that continues may run with other partitions, and must make its hops as before.
        """
        return SizedLoad(self.load, self(MOST_CHOSEN).n_units)

    def __call__(self, partitions: int) -> Multiway:
        """Choose the sizes for a number of shuffle partitions."""
        model = self.model
        if self.objective is not None:
            model = model.with_nodes(self.load.optimal_length(choose_n_units(partitions), self.objective))
        if self.knows_windows:
            model = model.with_slices(choose_initial_slice(min(self.load.held), model.n_units))
        if self.load.stored_once is not None and isinstance(model, Ring):
            model = model.store_once(self.load.stored_once)
        return model


def _choose_hops(
    sizes: _NodesChoice, request: JoinRequest, estimate: Callable[[Statistics, int | None], MultiwayLoad]
) -> tuple[_NodesChoice, str]:
    """Choose where a ring makes its hops; return the choice of nodes for this load, and the reason."""
    ring, statistics = cast(Ring, sizes.model), request.statistics or Statistics()
    aliases = [stream.alias for stream in request.streams]

    def choose(known: Statistics) -> SizedLoad:
        loads = [estimate(known, stream) for stream in range(len(aliases))]
        return choose_stored_once([replace(sizes, load=load).estimate_longest() for load in loads])

    # A ring of a given number of nodes makes its hops in one way, whatever the statistics are.
    known = Statistics() if sizes.objective is None else statistics
    against = find_reason_against(ring, request.run.max_units, estimate(known, None), choose(known))
    if against is not None:
        return sizes, against
    load, nodes = choose(statistics)
    others = [alias for stream, alias in enumerate(aliases) if stream != load.stored_once]
    why = f"all nodes store {' and '.join(others)}: {load.copies(nodes):.1f} copies of a tuple"
    return replace(sizes, load=load), why


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

    Only hop orders that the user did not set are refined, and only where each node sees all partial results
    of the tuples that it begins with.
    """
    if len(graph.sides) < 3 or not model.measures_hops or all(is_set):
        return None
    numbers = {side.alias: n for n, side in enumerate(graph.sides)}
    read = [(sum(1 << numbers[alias] for alias in aliases), share) for aliases, share in ties]
    return Refinement(
        tuple(not each for each in is_set),
        tuple((streams, share) for streams, share in read if streams.bit_count() > 1),
        tuple(graph.lifetime_us(stream) for stream in range(len(graph.sides))),
    )
