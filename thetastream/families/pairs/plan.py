"""Plans joins of two streams: what all kinds of them share, and the joins whose results are pairs.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, both inside the window }
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, TypeVar

from thetastream.conditions import Predicate
from thetastream.core.errors import QueryError
from thetastream.engine.order import Order, read_order
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import TaskJoin
from thetastream.engine.two_stream.content_routing import find_placing, find_routable_band
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundSource, BoundSources
from thetastream.families.base import Facts, FinalJoin
from thetastream.families.pairs.choose import ChosenModel, ModelChoice, choose_model, find_arrival_problem
from thetastream.families.pairs.cost import estimate
from thetastream.families.pairs.explain import explain, explain_cost
from thetastream.families.pairs.flow import (
    ARRIVAL,
    build_bounding_spec,
    build_pairs_spec,
    describe_bounded_pairs,
    describe_ordered_pairs,
    describe_pairs,
    describe_unit,
    let_units_change,
    open_choice,
)
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.families.pairs.workload import build_workload
from thetastream.families.request import JoinRequest, Refusal, find_how_problems
from thetastream.families.result_time import write_answer_time
from thetastream.families.windows import find_arrival_problems, is_counted, read_count_windows
from thetastream.lowering.identity import Reading
from thetastream.lowering.lower import Lowered, lower
from thetastream.lowering.payload import check_at_units, list_catalyst_residual, narrow_results
from thetastream.lowering.physical import PhysicalPlan
from thetastream.lowering.query import Query, Resolver, Stream, list_conditions
from thetastream.lowering.report import Fact, Section
from thetastream.lowering.statistics import Statistics
from thetastream.models.base import Model, moves_tuples
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Emitted, Flow, Output, RunContext, UnitStage


@dataclass(frozen=True, repr=False)
class TwoStreamPlan(ABC):
    """A join of two streams. A subclass says what its units do, and what may follow them."""

    request: JoinRequest
    query: Query
    lowered: Lowered
    chosen: ChosenModel
    order: Order | None = None
    """The order of results; None if they have none."""

    # What the kinds of joins differ in

    sends_messages: ClassVar[bool] = False
    """Whether units send each other messages."""
    is_prompt: ClassVar[bool] = True
    """Whether each result leaves in the epoch of its last tuple."""

    @classmethod
    def complete(cls, resolver: Resolver, query: Query, lowered: Lowered) -> tuple[Query, Lowered]:
        """Return the query and its physical plan with what this kind of join needs beside pairs."""
        return query, lowered

    @abstractmethod
    def list_stages(self, plan: PhysicalPlan) -> tuple[UnitStage, ...]:
        """List the units that tuples pass."""

    @property
    @abstractmethod
    def stores_tuples_only(self) -> bool:
        """Whether units return each pair when they find it, and keep nothing but stored tuples.

        Such tuples may move to other units.
        """

    @abstractmethod
    def _describe_emitted(self) -> Emitted | str:
        """Describe what units emit, or why they cannot write it into a store."""

    @abstractmethod
    def _describe_final_join(self) -> FinalJoin | str:
        """Describe the join whose units can fold the matches, or why none can."""

    def _explain_cost(self) -> Iterable[Fact]:
        return explain_cost(self.request, self.query, self.lowered, self.chosen, self.order is not None)

    # What they share

    @property
    def model(self) -> Model:
        """The model of the units."""
        return self.chosen.model

    @property
    def inputs(self) -> tuple[Stream, ...]:
        """The streams, in the order of the result's columns."""
        return self.query.streams

    @property
    def models(self) -> tuple[Model, ...]:
        """The model."""
        return (self.model,)

    @property
    def run(self) -> RunContext:
        """The settings with which the units run."""
        return self.request.run

    @property
    def physical(self) -> PhysicalPlan:
        """The physical plan: key columns, dimensions, index shapes and residual conjuncts."""
        return self.lowered.physical

    @property
    def reading(self) -> Reading:
        """How the session reads the query, and for how many partitions the model was chosen."""
        chosen_for = None if self.chosen.choose is None else self.request.partitions
        return Reading(self.request.resolver.is_case_sensitive, chosen_for)

    @cached_property
    def facts(self) -> Facts:
        """What the code around the join must know of it."""
        query, time = self.query, self._write_result_time()
        return Facts(
            condition=" AND ".join(list_conditions(query.on, query.predicates)),
            result_time=time,
            shows_result_time=query.has_result_time and time is not None,
            has_deletes=any(stream.change_type is not None for stream in query.streams),
            is_prompt=self.is_prompt,
            longest_window_us=max(query.within_us or (0,)),
            emitted=self._describe_emitted(),
            final=self._describe_final_join(),
            is_ordered=self.order is not None,
        )

    def _write_result_time(self) -> str | None:
        return write_answer_time(self.query.how, self.inputs, self.physical.lifetimes_us)

    def explain(self) -> tuple[Section, ...]:
        """Explain the join, with a section for each stage of the plan."""
        stages = explain(self.request, self.query, self.lowered, self.chosen, self.order)
        return (*stages, Section("Cost", tuple(self._explain_cost())))

    def flow(self, read: Collection[str] | None = None) -> Flow:
        """Describe how tuples become results. With ``read``, units emit only these columns."""
        plan = self.physical if read is None else narrow_results(check_at_units(self.physical), set(read))
        identity = identify_two_streams(plan, self.model, self.reading, self.order)
        parts = {stream.alias: stream.parts for stream in self.inputs if stream.parts}
        placing, shed = find_placing(plan.condition), self.run.shed
        is_semantic = shed is not None and shed.is_semantic and placing is not None
        flow = Flow(
            plan.sides,
            plan.condition.sides,
            self.list_stages(plan),
            identity,
            parts=parts,
            places=placing.find_places if placing is not None and is_semantic else None,
        )
        rules = self.find_rules()
        return flow if rules is None else let_units_change(flow, rules)

    def rechoose(self, now: Model, measured: Statistics, factor: float) -> Model | None:
        """Return a model that costs less by measured statistics than the one that runs now; None if the
        estimates do not differ by ``factor``."""
        shed, work = self.run.shed, build_workload(self.query, self.lowered, measured)
        needs_probes_apart = shed is not None and shed.sheds_probes
        choice = ModelChoice(work, self.lowered, self.order is not None, needs_probes_apart)
        return choice.find_better(now, self.request.partitions, factor)

    def make_stage(
        self, make: Callable[[Any], EngineSpec], output: Output, order: Order | None = None
    ) -> UnitStage:
        """Make the stage of units whose spec ``make`` builds, under every model that may be chosen."""
        choice = open_choice(self.reading, self.chosen.choose, make)
        return UnitStage(make(self.model), output, choice, order)

    def find_rules(self) -> Rules | None:
        """Find how the units may change while the join runs; None if they do not change."""
        given, condition = self.run, self.physical.condition
        if given.max_units is None or not self.request.is_streaming:
            return None
        routings = ["hash"] * bool(condition.equalities)
        routings += ["range"] * (find_routable_band(condition) is not None)
        # Tuples of a count window leave it when enough others have arrived.
        is_counted = self.physical.counts is not None
        left, right = (not is_counted and lifetime is None for lifetime in self.physical.lifetimes_us)
        return Rules(
            given.max_units,
            tuple(routings),
            never_expires=(left, right),
            can_shed=given.shed is not None,
            counts_tuples=is_counted,
            only_sizes=self.sends_messages,
            preserved=self.query.how.preserved,
            is_ordered=self.order is not None,
            moves_tuples=(left or right or moves_tuples(self.model)) and self.stores_tuples_only,
        )


def describe_emitted(planned: TwoStreamPlan) -> Emitted | str:
    """Describe the pairs that units emit, or why they cannot write them into a store."""
    if not planned.request.is_streaming:
        return "the inputs are batches"
    if planned.order is not None:
        return "one task puts results in order"
    residual = list_catalyst_residual(planned.physical)
    if residual:
        return f"Spark evaluates {residual[0]}"
    times = {stream.alias: str(stream.event_time) for stream in planned.inputs}
    return Emitted(planned.physical.sides, times if planned.query.has_result_time else {})


@dataclass(frozen=True, repr=False)
class PairsPlan(TwoStreamPlan):
    """A join of two streams whose results are pairs, by units that send no messages."""

    bounds_watermark: bool = False
    """Whether units add to each pair how far the watermark rises after the epoch."""

    def list_stages(self, plan: PhysicalPlan) -> tuple[UnitStage, ...]:
        unit = describe_unit(plan, self.order is not None)
        if self.order is not None:
            make = partial(build_pairs_spec, unit, self.order)
            return (self.make_stage(make, describe_ordered_pairs(plan), self.order),)
        if self.bounds_watermark:
            bounding = partial(build_bounding_spec, unit, self._find_bound_sources())
            return (self.make_stage(bounding, describe_bounded_pairs(plan)),)
        make = partial(build_pairs_spec, unit, None)
        return (self.make_stage(make, describe_pairs(plan.sides, plan.residual)),)

    def _find_bound_sources(self) -> BoundSources:
        """Find where units read how far each input moves the watermark."""
        sources = []
        for stream, side in zip(self.inputs, self.physical.sides, strict=True):
            field = stream.watermark_bound or stream.event_time
            column = next(carried.block_column for carried in side.carried if carried.field == field)
            sources.append(BoundSource(column, (stream.watermark_delay_us or 0) // 1000))
        return sources[0], sources[1]

    def build_task(self, plan: PhysicalPlan) -> TaskJoin:
        """Build the join of one of several tasks, whose plan may name key columns otherwise."""
        return TwoStreamSpec(describe_unit(plan), self.model)

    @property
    def stores_tuples_only(self) -> bool:
        # Units that keep numbers of tuples begin to count when they begin, so such tuples do not move.
        return self.order is None and self.physical.counts is None and not self.bounds_watermark

    def _describe_emitted(self) -> Emitted | str:
        return describe_emitted(self)

    def _describe_final_join(self) -> FinalJoin | str:
        if moves_tuples(self.model):
            return "views do not move with stored tuples"
        left, right = self.inputs
        on: tuple[str | Predicate, ...] = (*self.query.on, *self.query.predicates)
        return FinalJoin((left, right), on, self.physical.residual)


class PairsFamily:
    """Joins of two streams, by units that send no messages."""

    refused: ClassVar[Mapping[str, Refusal]] = {}

    def takes(self, request: JoinRequest) -> bool:
        return len(request.streams) == 2

    def plan(self, request: JoinRequest) -> PairsPlan:
        return plan_two_streams(request, PairsPlan)


PAIRS = PairsFamily()
Kind = TypeVar("Kind", bound=TwoStreamPlan)


def plan_two_streams(request: JoinRequest, kind: type[Kind]) -> Kind:
    """Plan a join of two streams, as a plan of this kind."""
    # 1. Read what only joins of two streams support: count windows and an order of results.
    counts, problems = read_count_windows(request)
    order = None
    try:
        order = read_order(request.options.get("order"), bool(request.options.get("punctuations")))
    except QueryError as problem:
        problems.append(problem)
    problems += _find_order_problems(request, order is not None)
    if counts is not None:
        hint = 'use a window of event time, as in within="5 minutes"'
        problems += find_how_problems(request.how, "a count window", hint)
    if order is not None:
        problems += find_how_problems(request.how, "an order of results", "leave order out")
    # 2. Check the session, and plan the query.
    request = request.with_problems(problems).prepare_run(kind.sends_messages)
    planned = plan_query(request, request.query(counts), order, kind)
    if request.is_streaming:
        _warn_of_memory(planned)
    return planned


def plan_query(request: JoinRequest, query: Query, order: Order | None, kind: type[Kind]) -> Kind:
    """Plan a validated query."""
    resolver, index = request.resolver, request.options.get("index")
    lowered = lower(query, resolver, index=index, archive_period_us=request.archive_period_us)
    query, lowered = kind.complete(resolver, query, lowered)
    return kind(request, query, lowered, choose_model(request, query, lowered, order is not None), order)


def _warn_of_memory(planned: TwoStreamPlan) -> None:
    """Warn if a local session has too little memory for the windows, whose size must be known."""
    known = planned.request.statistics
    if planned.sends_messages or (known is None and planned.query.counts is None):
        return
    work = build_workload(planned.query, planned.lowered, known or Statistics())
    cost = estimate(planned.model, work, planned.request.partitions)
    planned.request.session.warn_of_state(cost.memory_bytes)


def _find_order_problems(request: JoinRequest, is_ordered: bool) -> list[QueryError]:
    """Find models without the order of arrival, and what an order of results does not allow."""
    problems = []
    if request.model is not None:
        unordered = find_arrival_problem(request.model, is_counted(request.within), is_ordered)
        problems += [] if unordered is None else [unordered]
    if is_ordered and ARRIVAL in (stream.alias.casefold() for stream in request.streams):
        what = f"ordered results have a column {ARRIVAL!r}; rename the stream"
        problems.append(QueryError("INVALID_ALIAS", what))
    return problems + (find_arrival_problems(request.streams) if is_ordered else [])
