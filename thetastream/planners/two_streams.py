"""Plans joins of two streams.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, both inside the window }
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from thetastream.control.change import Rules
from thetastream.core.result_columns import ColumnSource
from thetastream.core.shed import Shed
from thetastream.engine.shedding import Shedding
from thetastream.engine.two_stream.content_routing import find_routable_band
from thetastream.errors import QueryError, raise_problems
from thetastream.frontend.checked import CheckedRequest
from thetastream.frontend.how import refuse_how
from thetastream.frontend.mailbox_folder import choose_mailbox_folder
from thetastream.frontend.max_units import read_max_units
from thetastream.frontend.shed import find_shed_problem
from thetastream.frontend.window import find_arrival_problems, is_counted, read_counts
from thetastream.models.base import Model
from thetastream.order import Order, read_order
from thetastream.plan.choose import (
    ModelChoice,
    SizeChoice,
    choose_n_units,
    find_arrival_problem,
    find_refusal,
)
from thetastream.plan.decide import find_decision_problems
from thetastream.plan.explain import explain
from thetastream.plan.folding import Folding
from thetastream.plan.lower import Lowered, lower
from thetastream.plan.payload import exchange_payload, narrow_results
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.query import Query, Resolver, Stream
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import build_workload
from thetastream.planners.plan import Plan, PlannedInput, list_conditions
from thetastream.planners.result_time import build_answer_time
from thetastream.planners.staging import Emitted
from thetastream.spark.build import JoinSpec, build
from thetastream.spark.carriers import carry
from thetastream.spark.control.access import Control
from thetastream.spark.idle.reports import IdleReports, list_idle_reports
from thetastream.spark.joins import ENGINES, build_folded_join
from thetastream.spark.ordered import ARRIVAL
from thetastream.spark.session import check_session
from thetastream.spark.staging import Staging, Target


@dataclass(frozen=True)
class GivenStream:
    """A DataFrame of the user as a source."""

    frame: DataFrame

    def dataframe(self) -> DataFrame:
        """The stream itself."""
        return self.frame


@dataclass(frozen=True)
class Settings:
    """Settings of a join of two streams."""

    model: Model | None = None
    """The model. None means the cheapest model that can run the query."""
    choose: Callable[[int], Model] | None = None
    """How the model follows from the number of shuffle partitions; None if the user gave all of it."""
    index: str | None = None
    archive_period_us: int | None = None
    order: Order | None = None
    partitions: int = 2
    """Number of shuffle partitions of the session."""
    statistics: Statistics | None = None
    """The statistics from which costs are estimated. None means the default assumptions."""
    cache_folder: str | None = None
    late: str | None = None
    """The folder of late tuples; None if they are only counted."""
    shed: Shed | None = None
    """The load shedder; None if nothing is dropped."""
    idle: IdleReports | None = None
    """What units report about streams that may be idle. None if no stream may be."""
    mailbox: str = ""
    """The folder of mailboxes, if the model, the load shedder or ``max_units`` needs one; otherwise empty."""
    max_units: int | None = None
    """The largest number of units at once; None if the units do not change while the join runs."""


@dataclass(frozen=True, repr=False)
class JoinPlan(Plan):
    """A join of two streams that is checked and planned but not started."""

    query: Query
    lowered: Lowered
    model: Model
    model_reason: str
    sources: tuple[PlannedInput, PlannedInput]
    settings: Settings
    folding: Folding | None = None
    """How units fold their matches into views. If it is None, matches leave the units as pairs."""

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.query.streams

    @property
    def models(self) -> tuple[Model, ...]:
        return (self.model,)

    @property
    def conditions(self) -> tuple[str, ...]:
        return list_conditions(self.query)

    @property
    def has_result_time(self) -> bool:
        return self.query.has_result_time and self.has_time_column

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
        left, right = self.sources
        return left.dataframe(), right.dataframe()

    @property
    def longest_window_us(self) -> int:
        return max(self.query.within_us or (0,))

    @property
    def is_prompt(self) -> bool:
        return self.model.is_prompt(2)

    @property
    def is_punctuated(self) -> bool:
        order = self.settings.order
        return order is not None and order.is_punctuated

    def explain(self) -> str:
        """Return every stage of the plan as text: parsed, rewritten, shaped, physical, cost."""
        given = self.settings
        return explain(
            self.query,
            self.lowered,
            self.model,
            self.model_reason,
            given.order,
            given.partitions,
            given.statistics,
            given.shed,
        )

    def results(self) -> DataFrame:
        """Build the results: one struct column per alias.

        If the plan is folded, they are the rows of the views: one row per unit, epoch and group.
        """
        return self._build(self._join())

    def _build(self, join: JoinSpec, staging: Staging | None = None) -> DataFrame:
        given = self.settings
        late, idle = given.late, given.idle
        shedding = None if given.shed is None else Shedding(given.shed, self.physical.condition.sides)
        return build(
            join,
            self.streams,
            given.mailbox,
            given.cache_folder,
            late,
            idle,
            shedding,
            staging,
            self._control,
        )

    @property
    def _control(self) -> Control | None:
        """How the units may change while the join runs."""
        given, condition = self.settings, self.physical.condition
        if given.max_units is None or not self.is_streaming:
            return None
        routings = ["hash"] * bool(condition.equalities)
        routings += ["range"] * (find_routable_band(condition) is not None)
        left, right = (lifetime is None for lifetime in self.physical.lifetimes_us)
        return Control(
            given.mailbox, Rules(given.max_units, tuple(routings), (left, right), given.shed is not None)
        )

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
        residual = self.physical.residual
        return f"Spark evaluates {residual[0]}" if residual else None

    @property
    def emitted(self) -> Emitted:
        return Emitted(self.physical.sides, self.event_times if self.has_result_time else {})

    def stage_results(self, target: Target, sources: tuple[ColumnSource, ...]) -> DataFrame:
        narrow = narrow_results(self.physical, {name for one in sources for name in one.read})
        join = ENGINES[self.model.engine](narrow, self.model, self.streams, None, self._choose)
        columns = tuple(name for spec in narrow.condition.sides for name in spec.columns)
        return self._build(join, Staging(target, columns, sources))

    def _join(self) -> JoinSpec:
        if self.folding is not None:
            return build_folded_join(self.physical, self.model, self.streams, self.folding, self._choose)
        join = ENGINES[self.model.engine]
        return join(self.physical, self.model, self.streams, self.settings.order, self._choose)

    @property
    def _choose(self) -> Callable[[int], Model] | None:
        """How the model follows from the number of shuffle partitions; None if the user gave the model."""
        if self.settings.model is not None:
            return self.settings.choose
        return _open_choice(self.query, self.lowered, self.settings)

    @property
    def folding_obstacle(self) -> str | None:
        if not self.query.how.is_inner:
            return f"how={self.query.how.name!r} answers each tuple"
        residual = self.physical.residual
        return f"{residual[0]} is evaluated behind the units" if residual else None

    def fold(self, folding: Folding, streams: Mapping[str, DataFrame]) -> "JoinPlan":
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
        model, reason = _choose_model(query, lowered, self.settings)
        left, right = (GivenStream(streams[alias]) for alias in query.aliases)
        return replace(
            self,
            query=query,
            lowered=lowered,
            model=model,
            model_reason=reason,
            sources=(left, right),
            folding=folding,
        )


def plan_two_streams(checked: CheckedRequest) -> JoinPlan:
    """Plan a join of two streams."""
    # 1. Read what only joins of two streams support: count windows and an order of results.
    request, settings, problems = checked.request, checked.settings, checked.problems
    counts = read_counts(request.within, checked.streams, problems) if is_counted(request.within) else None
    order = None
    try:
        order = read_order(settings["order"], settings["punctuations"])
    except QueryError as problem:
        problems.append(problem)
    _refuse_order(checked, counts is not None, order is not None)
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
        problems += check_session(request.spark, n_units)
        max_units = read_max_units(settings["max_units"], model, problems)
        has_mailbox = model is not None and model.has_mailbox(2)
        if has_mailbox or checked.shed is not None or max_units is not None:
            mailbox = choose_mailbox_folder(request.spark, settings["mailbox"], problems)
    elif model is not None:
        model = model.on_batch
    # 3. Plan the query.
    query = checked.query(counts)
    left, right = (GivenStream(frame) for frame in request.streams.values())
    chosen = Settings(
        model,
        SizeChoice(model) if checked.has_open_size and model is not None else None,
        settings["index"],
        checked.archive_period_us,
        order,
        checked.partitions,
        checked.statistics,
        settings["cache_folder"],
        checked.late,
        checked.shed,
        list_idle_reports(checked.streams),
        mailbox,
        max_units,
    )
    return plan_query(query, checked.catalyst, (left, right), chosen)


def plan_query(
    query: Query, resolver: Resolver, sources: tuple[PlannedInput, PlannedInput], settings: Settings
) -> JoinPlan:
    """Plan a validated query over two sources."""
    asked = {"index": settings.index, "archive_period_us": settings.archive_period_us}
    lowered = lower(query, resolver, asked)
    raise_problems(list(find_decision_problems(query, lowered)))
    model, reason = _choose_model(query, lowered, settings)
    return JoinPlan(query, lowered, model, reason, sources, settings)


def _choose_model(query: Query, lowered: Lowered, settings: Settings) -> tuple[Model, str]:
    """Return the model of the settings, or the cheapest model that can run the query, and the reason."""
    if settings.model is None:
        return _open_choice(query, lowered, settings).explain(settings.partitions)
    problem = find_refusal(settings.model, lowered) or find_shed_problem(settings.shed, settings.model)
    raise_problems([] if problem is None else [problem])
    return settings.model, "as asked for"


def _open_choice(query: Query, lowered: Lowered, settings: Settings) -> ModelChoice:
    work = build_workload(query, lowered, settings.statistics or Statistics())
    needs_probes_apart = settings.shed is not None and settings.shed.sheds_probes
    return ModelChoice(work, lowered, settings.order is not None, needs_probes_apart)


def _refuse_order(checked: CheckedRequest, has_counts: bool, is_ordered: bool) -> None:
    """Add an error if the query needs the order of arrival and the order is not known."""
    problems = checked.problems
    if checked.model is not None:
        unordered = find_arrival_problem(checked.model, is_counted(checked.request.within), is_ordered)
        problems += [] if unordered is None else [unordered]
    if has_counts and checked.archive_period_us is not None:
        what = "archive_period is a span of event time, and a count window has none; leave it out"
        problems.append(QueryError("ARCHIVE_PERIOD", what))
    if is_ordered and ARRIVAL in (stream.alias.casefold() for stream in checked.streams):
        what = f"ordered results have a column {ARRIVAL!r}; rename the stream"
        problems.append(QueryError("INVALID_ALIAS", what))
    if has_counts or is_ordered:
        known = set(map(str, problems))
        problems += [found for found in find_arrival_problems(checked.streams) if str(found) not in known]
