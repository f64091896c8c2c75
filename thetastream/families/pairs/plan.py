"""Plans joins of two streams.

The plan of a join of two streams.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, both inside the window }
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from thetastream.conditions import Predicate
from thetastream.core.columns import ColumnSource
from thetastream.core.errors import QueryError, raise_problems
from thetastream.engine.order import read_order
from thetastream.engine.two_stream.content_routing import find_routable_band
from thetastream.engine.two_stream.watermark_bound import BoundSource, BoundSources
from thetastream.families.answers import carry_residual, find_decision_problems
from thetastream.families.asked import (
    CheckedRequest,
    JoinSettings,
    PlannedInput,
    SessionChecks,
    check_max_units,
    refuse_how,
)
from thetastream.families.engines import ENGINES
from thetastream.families.pairs.choose import SizeChoice, build_choice, choose_model, find_arrival_problem
from thetastream.families.pairs.cost import estimate
from thetastream.families.pairs.explain import explain
from thetastream.families.pairs.flow import ARRIVAL, build_bounding_join, let_units_change
from thetastream.families.pairs.workload import build_workload
from thetastream.families.views.flow import build_folded_join
from thetastream.families.views.folding import FinalJoin, Folding
from thetastream.families.windows import is_counted, read_count_windows, refuse_unordered
from thetastream.joins.ask.carriers import carry
from thetastream.joins.plan import QueryPlan, build_answer_time
from thetastream.lowering.identity import Reading
from thetastream.lowering.lower import Lowered, lower
from thetastream.lowering.payload import (
    check_at_units,
    exchange_payload,
    list_catalyst_residual,
    narrow_results,
)
from thetastream.lowering.physical import PhysicalPlan
from thetastream.lowering.query import RESULT_TIME, Query, Resolver, Stream
from thetastream.lowering.report import Fact, Section
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models.base import Model
from thetastream.runtime.context import RunContext
from thetastream.runtime.control.plan import Rules
from thetastream.runtime.flow import Emitted, Flow, Staging, Target
from thetastream.spark.dataflow.build import build


@dataclass(frozen=True, repr=False)
class JoinPlan(QueryPlan):
    """A join of two streams that is checked and planned but not started."""

    query: Query
    lowered: Lowered
    model: Model
    model_reason: str
    planned_inputs: tuple[PlannedInput, PlannedInput]
    settings: JoinSettings
    folding: Folding | None = None
    """How units fold their matches into views. If it is None, matches leave the units as pairs."""

    @property
    def run(self) -> RunContext:
        """The settings with which the units run."""
        return self.settings.run

    @property
    def reading(self) -> Reading:
        """How the session reads the query, and for how many partitions the model was chosen."""
        given = self.settings
        is_chosen = given.model is None or given.choose is not None
        return Reading(given.is_case_sensitive, given.partitions if is_chosen else None)

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.model,)

    @property
    def has_result_time(self) -> bool:
        return super().has_result_time and self.has_time_column

    @property
    def has_time_column(self) -> bool:
        # A tuple that waits for ever has no time at which it is decided.
        how = self.query.how
        return not how.is_timed_by_decision or self.physical.lifetimes_us[how.preserved[0]] is not None

    def time_column(self, metadata: Mapping[str, int]) -> Column:
        return build_answer_time(self.query.how, self.inputs, self.physical.lifetimes_us, metadata)

    @property
    def physical(self) -> PhysicalPlan:
        """The physical plan: key columns, dimensions, index shapes and residual conjuncts."""
        return self.lowered.physical

    @property
    def streams(self) -> tuple[DataFrame, DataFrame]:
        """Both inputs as DataFrames."""
        left, right = self.planned_inputs
        return left.dataframe(), right.dataframe()

    @property
    def is_prompt(self) -> bool:
        return self.model.is_prompt(2)

    def explain_join(self) -> tuple[Section, ...]:
        given = self.settings
        stages = explain(
            self.query,
            self.lowered,
            self.model,
            self.model_reason,
            given.order,
            given.partitions,
            given.statistics,
            self.run.shed,
            self.run.max_units,
        )
        before = tuple(
            Fact(
                f"late rows of {stream.alias}:",
                f"{' and '.join(found)} before the join drops them; th.metrics counts them as late_elsewhere",
            )
            for stream, planned in zip(self.query.streams, self.planned_inputs, strict=True)
            if stream.event_time not in (None, RESULT_TIME) and (found := planned.list_dropping())
        )
        return (*stages, Section("Before the join", before)) if before else stages

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias.

        If the plan is folded, they are the rows of the views: one row per unit, epoch and group.
        """
        return self._build(self._join())

    def _build(self, flow: Flow, staging: Staging | None = None) -> DataFrame:
        rules = self._rules
        changing = flow if rules is None else let_units_change(flow, rules)
        return build(changing, self.streams, self.run, staging)

    @property
    def _rules(self) -> Rules | None:
        """How the units may change while the join runs."""
        given, condition = self.run, self.physical.condition
        if given.max_units is None or not self.is_streaming:
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
            only_sizes=self.model.has_mailbox(2),
            preserved=self.query.how.preserved,
            is_ordered=self.settings.order is not None,
            moves_tuples=(left or right or self.model.moves_tuples) and self._has_plain_pairs,
        )

    @property
    def _has_plain_pairs(self) -> bool:
        """Whether units return each pair when they find it, and keep nothing but stored tuples.

        Units that keep numbers of tuples begin to count when they begin, so such tuples do not move.
        """
        has_order_or_views = self.settings.order is not None or self.folding is not None
        keeps_more = has_order_or_views or self.physical.counts is not None
        return self.query.how.is_inner and not keeps_more and not self.model.has_mailbox(2)

    @property
    def staging_obstacle(self) -> str | None:
        if not self.is_streaming:
            return "the inputs are batches"
        if self.folding is not None:
            return "Spark merges the views of the units"
        if not self.query.how.is_inner:
            return f"Spark completes the rows of how={self.query.how.name!r}"
        if self.settings.order is not None:
            return "one task puts results in order"
        residual = list_catalyst_residual(self.physical)
        return f"Spark evaluates {residual[0]}" if residual else None

    @property
    def emitted(self) -> Emitted:
        return Emitted(self.physical.sides, self.event_times if self.has_result_time else {})

    def stage_results(self, target: Target, sources: tuple[ColumnSource, ...]) -> DataFrame:
        narrow = narrow_results(check_at_units(self.physical), {name for one in sources for name in one.read})
        flow = ENGINES[self.model.engine](narrow, self.model, self.reading, None, self._choose)
        columns = tuple(name for spec in narrow.condition.sides for name in spec.columns)
        return self._build(flow, Staging(target, columns, sources))

    def _join(self) -> Flow:
        if self.folding is not None:
            return build_folded_join(self.physical, self.model, self.reading, self.folding, self._choose)
        if self.settings.bounds_watermark:
            sources = self._find_bound_sources()
            return build_bounding_join(self.physical, self.model, self.reading, sources, self._choose)
        join = ENGINES[self.model.engine]
        return join(self.physical, self.model, self.reading, self.settings.order, self._choose)

    def _find_bound_sources(self) -> BoundSources:
        """Find where units read how far each input moves the watermark."""
        sources = []
        for given, stream, side in zip(
            self.planned_inputs, self.query.streams, self.physical.sides, strict=True
        ):
            field = given.watermark_bound or stream.event_time
            column = next(carried.block_column for carried in side.carried if carried.field == field)
            sources.append(BoundSource(column, (stream.watermark_delay_us or 0) // 1000))
        return sources[0], sources[1]

    @property
    def _choose(self) -> Callable[[int], Model] | None:
        """How the model follows from the number of shuffle partitions; None if the user gave the model."""
        if self.settings.model is not None:
            return self.settings.choose
        return build_choice(self.query, self.lowered, self.settings)

    @property
    def folding_obstacle(self) -> str | None:
        if not self.query.how.is_inner:
            return f"how={self.query.how.name!r} answers each tuple"
        return "views do not move with stored tuples" if self.model.moves_tuples else None

    @property
    def final_join(self) -> FinalJoin:
        left, right = self.query.streams
        on: tuple[str | Predicate, ...] = (*self.query.on, *self.query.predicates)
        return FinalJoin((left, right), on, self.physical.residual)

    @property
    def final_inputs(self) -> tuple[PlannedInput, PlannedInput]:
        return self.planned_inputs

    def fold(self, folding: Folding, streams: Mapping[str, PlannedInput]) -> "JoinPlan":
        # 1. Keep the condition. Drop the payload that only results needed, and add the computed columns.
        inputs: list[Stream] = []
        for stream in self.query.streams:
            schema = streams[stream.alias].schema
            carried, problems = carry(stream.alias, schema, sum(len(known.carried) for known in inputs))
            raise_problems(problems)
            types = tuple((field.name, field.dataType.simpleString()) for field in schema)
            inputs.append(replace(stream, types=types, carried=carried))
        physical = exchange_payload(self.physical, (inputs[0].carried, inputs[1].carried))
        query = replace(self.query, streams=tuple(inputs), has_result_time=False)
        lowered = replace(self.lowered, physical=physical)
        # 2. Choose the model again: tuples have another size, so another model may be cheaper.
        model, reason = choose_model(query, lowered, self.settings)
        left, right = (streams[alias] for alias in query.aliases)
        return replace(
            self,
            query=query,
            lowered=lowered,
            model=model,
            model_reason=reason,
            planned_inputs=(left, right),
            folding=folding,
        )


def plan_two_streams(checked: CheckedRequest) -> JoinPlan:
    """Plan a join of two streams."""
    # 1. Read what only joins of two streams support: count windows and an order of results.
    request, options, problems = checked.request, checked.options, checked.problems
    counts = read_count_windows(checked)
    order = None
    try:
        order = read_order(options.get("order"), bool(options.get("punctuations")))
    except QueryError as problem:
        problems.append(problem)
    _refuse_by_arrival(checked, order is not None)
    if counts is not None:
        refuse_how(
            request.how, "a count window", 'use a window of event time, as in within="5 minutes"', problems
        )
    if order is not None:
        refuse_how(request.how, "an order of results", "leave order out", problems)
    # 2. Check the session.
    model, mailbox, max_units = checked.model, "", None
    if checked.is_streaming:
        n_units = choose_n_units(checked.partitions) if model is None else model.n_units
        problems += checked.session.find_problems(n_units)
        max_units = options.get("max_units")
        check_max_units(max_units, model, problems)
        has_mailbox = model is not None and model.has_mailbox(2)
        if has_mailbox or checked.run.shed is not None or max_units is not None:
            mailbox = checked.session.choose_mailbox_folder(options.get("mailbox"), problems)
    elif model is not None:
        model = model.on_batch
    # 3. Plan the query.
    query = checked.query(counts)
    left, right = checked.inputs
    chosen = JoinSettings(
        model,
        choose=SizeChoice(model) if checked.has_open_size and model is not None else None,
        index=options.get("index"),
        archive_period_us=checked.archive_period_us,
        order=order,
        partitions=checked.partitions,
        is_case_sensitive=checked.catalyst.is_case_sensitive,
        statistics=checked.statistics,
        run=replace(checked.run, mailbox=mailbox, max_units=max_units),
    )
    planned = plan_query(query, checked.catalyst, (left, right), chosen)
    if checked.is_streaming:
        _warn_of_memory(checked.session, planned)
    return planned


def _warn_of_memory(session: SessionChecks, planned: JoinPlan) -> None:
    """Warn if a local session has too little memory for the windows, whose size must be known."""
    known = planned.settings.statistics
    if planned.model.costs_by != "routes" or (known is None and planned.query.counts is None):
        return
    work = build_workload(planned.query, planned.lowered, known or Statistics())
    cost = estimate(planned.model, work, planned.settings.partitions)
    session.warn_of_state(cost.memory_bytes)


def plan_query(
    query: Query,
    resolver: Resolver,
    inputs: tuple[PlannedInput, PlannedInput],
    settings: JoinSettings,
) -> JoinPlan:
    """Plan a validated query over two inputs."""
    asked = {"index": settings.index, "archive_period_us": settings.archive_period_us}
    lowered = lower(query, resolver, asked)
    raise_problems(find_decision_problems(query, lowered))
    query, lowered = carry_residual(query, lowered, inputs)
    model, reason = choose_model(query, lowered, settings)
    return JoinPlan(query, lowered, model, reason, inputs, settings)


def _refuse_by_arrival(checked: CheckedRequest, is_ordered: bool) -> None:
    """Add errors for models without the order of arrival, and for what an order of results does not
    allow."""
    problems = checked.problems
    if checked.model is not None:
        unordered = find_arrival_problem(checked.model, is_counted(checked.request.within), is_ordered)
        problems += [] if unordered is None else [unordered]
    if is_ordered and ARRIVAL in (stream.alias.casefold() for stream in checked.streams):
        what = f"ordered results have a column {ARRIVAL!r}; rename the stream"
        problems.append(QueryError("INVALID_ALIAS", what))
    if is_ordered:
        refuse_unordered(checked)
