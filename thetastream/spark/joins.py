"""Turns plans into joins that ``thetastream.spark.build`` can run, with one function per family of joins."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from thetastream.aggregate import Fold
from thetastream.aggregate.engine import FoldedSpec
from thetastream.core.condition import Condition
from thetastream.core.how import How
from thetastream.core.ranking import Ranking
from thetastream.engine.answers.spec import AnswersSpec, CandidatesSpec, DecidingSpec, NearestSpec
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.order import Order
from thetastream.engine.order.engine import PunctuatedSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskJoin, TaskSpec
from thetastream.engine.two_stream.moving import MovingSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.engine.two_stream.watermark_bound import BoundingSpec, BoundSources
from thetastream.models.base import HANDSHAKE, UNITS, Model
from thetastream.models.chain import Chain
from thetastream.plan.folding import Folding
from thetastream.plan.graph import LoweredGraph
from thetastream.plan.identity import (
    Reading,
    identify_model,
    identify_multiway,
    identify_tasks,
    identify_two_streams,
)
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.tasks import TasksPlan
from thetastream.spark.build import JoinSpec
from thetastream.spark.choice import Choice, Fitted
from thetastream.spark.deciding import Deciding
from thetastream.spark.output import (
    describe_answers,
    describe_bounded_pairs,
    describe_candidates,
    describe_ordered_pairs,
    describe_pairs,
    describe_tagged_pairs,
    describe_views,
)
from thetastream.spark.session import count_partitions, is_case_sensitive

Choose = Callable[[int], Any]
"""A picklable function from a number of shuffle partitions to the model that the planner chooses for it."""


class JoinMaker(Protocol):
    """A function that joins two streams with one engine."""

    def __call__(
        self,
        plan: PhysicalPlan,
        model: Any,
        streams: Sequence[DataFrame],
        order: Order | None = None,
        choose: Choose | None = None,
    ) -> JoinSpec: ...


def build_two_stream_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    order: Order | None = None,
    choose: Choose | None = None,
) -> JoinSpec:
    """Join two streams under a model whose units send no messages.

    ``choose`` is given if the planner has chosen the model.
    """
    spark = streams[0].sparkSession
    unit = _describe_unit(plan, plan.condition, order is not None)
    reading = _read_session(streams, choose)
    if not plan.how.is_inner:
        return _build_answers(plan, unit, model, spark, reading, choose)
    output = (
        describe_pairs(spark, plan.sides, plan.residual)
        if order is None
        else describe_ordered_pairs(spark, plan)
    )
    columns = None
    if order is not None and order.is_punctuated:
        columns = to_arrow_schema(output.columns, timezone=spark.conf.get("spark.sql.session.timeZone"))
    make = partial(_build_pairs_spec, unit, order, columns)
    identity = identify_two_streams(plan, model, reading, order)
    return JoinSpec(make(model), plan.sides, output, identity, order, _open_choice(reading, choose, make))


def _build_pairs_spec(unit: UnitSpec, order: Order | None, columns: Any, model: Model) -> EngineSpec:
    join = TwoStreamSpec(unit, model)
    return join if order is None or columns is None else PunctuatedSpec(join, order, columns)


def _build_answers(
    plan: PhysicalPlan,
    unit: UnitSpec,
    model: Model,
    spark: SparkSession,
    reading: Reading,
    choose: Choose | None,
) -> JoinSpec:
    """Join two streams and answer each tuple. If there is a residual, second units decide behind it."""
    how, ranking = plan.how, plan.ranking
    identity = identify_two_streams(plan, model, reading)
    answers = describe_answers(spark, plan.sides, how)
    columns = [side.time.column for side in plan.condition.sides if side.time is not None]
    times = tuple(columns) if how.waits and len(columns) == len(plan.sides) else None
    if not plan.residual:
        make = partial(_build_answers_spec, unit, how, ranking)
        choice = _open_choice(reading, choose, make)
        return JoinSpec(make(model), plan.sides, answers, identity, choice=choice, waits_by=times)
    first = partial(_build_candidates_spec, unit, how, ranking)
    second = partial(_build_deciding_spec, first)
    deciding = Deciding(second(model), answers, _open_choice(reading, choose, second))
    candidates = describe_candidates(spark, plan, first(model).columns)
    choice = _open_choice(reading, choose, first)
    return JoinSpec(
        first(model), plan.sides, candidates, identity, choice=choice, deciding=deciding, waits_by=times
    )


def _build_answers_spec(unit: UnitSpec, how: How, ranking: Ranking | None, model: Model) -> EngineSpec:
    join = TwoStreamSpec(unit, model)
    return AnswersSpec(join, how) if ranking is None else NearestSpec(join, how, ranking)


def _build_candidates_spec(unit: UnitSpec, how: How, ranking: Ranking | None, model: Model) -> CandidatesSpec:
    return CandidatesSpec(TwoStreamSpec(unit, model), how, ranking)


def _build_deciding_spec(first: Callable[[Model], CandidatesSpec], model: Model) -> DecidingSpec:
    return DecidingSpec(first(model))


def build_folded_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    folding: Folding,
    choose: Choose | None = None,
) -> JoinSpec:
    """Join two streams, with units that aggregate their matches into views."""
    output, fold, condition = describe_views(streams, plan, folding)
    make = partial(_build_folded_spec, _describe_unit(plan, condition), fold)
    reading = _read_session(streams, choose)
    identity = identify_two_streams(plan, model, reading, None, folding)
    choice = _open_choice(reading, choose, make)
    return JoinSpec(make(model), plan.sides, output, identity, choice=choice)


def _build_folded_spec(unit: UnitSpec, fold: Fold, model: Model) -> EngineSpec:
    return FoldedSpec(TwoStreamSpec(unit, model), fold)


def build_bounding_join(
    plan: PhysicalPlan,
    model: Model,
    streams: Sequence[DataFrame],
    sources: BoundSources,
    choose: Choose | None = None,
) -> JoinSpec:
    """Join two streams, with units that add a bound of the watermark to each result."""
    make = partial(_build_bounding_spec, _describe_unit(plan, plan.condition), sources)
    reading = _read_session(streams, choose)
    output = describe_bounded_pairs(streams[0].sparkSession, plan)
    choice = _open_choice(reading, choose, make)
    return JoinSpec(
        make(model), plan.sides, output, identify_two_streams(plan, model, reading), choice=choice
    )


def _build_bounding_spec(unit: UnitSpec, sources: BoundSources, model: Model) -> EngineSpec:
    return BoundingSpec(TwoStreamSpec(unit, model), sources)


def build_handshake_join(
    plan: PhysicalPlan,
    model: Chain,
    streams: Sequence[DataFrame],
    order: Order | None = None,
    choose: Choose | None = None,
) -> JoinSpec:
    """Join two streams on a handshake chain, whose workers pass tuples on to their neighbours.

    The planner refuses an order of results, because the chain does not keep the order of arrival. It never
    chooses a chain.
    """
    assert order is None
    assert choose is None
    spec = _describe_chain(plan, model)
    output = describe_pairs(streams[0].sparkSession, plan.sides, plan.residual)
    return JoinSpec(spec, plan.sides, output, identify_two_streams(plan, model, _read_session(streams)))


ENGINES: Mapping[str, JoinMaker] = {UNITS: build_two_stream_join, HANDSHAKE: build_handshake_join}
"""For each name that ``Model.engine`` returns, the function that joins two streams with this engine."""


def build_multiway_join(
    plan: LoweredGraph, spec: MultiwaySpec, streams: Sequence[DataFrame], choose: Choose | None = None
) -> JoinSpec:
    """Join two or more streams, hop by hop. ``choose`` is given if the planner has chosen the nodes."""
    output = describe_pairs(streams[0].sparkSession, plan.sides, plan.residual)
    reading = _read_session(streams, choose)
    choice = _open_choice(reading, choose, spec.with_model)
    return JoinSpec(spec, plan.sides, output, identify_multiway(plan, spec, reading), choice=choice)


def build_shared_tasks_join(
    plan: TasksPlan, model: Model, streams: Sequence[DataFrame], choose: Choose | None = None
) -> JoinSpec:
    """Run several joins of the same two streams behind one exchange."""
    describe = TASK_JOINS[model.engine]
    spec = SharedTasksSpec(
        tuple(TaskSpec(task.name, describe(task.plan, model), task.passes) for task in plan.tasks)
    )
    output = describe_tagged_pairs(streams[0].sparkSession, plan)
    reading = _read_session(streams, choose)
    identity = identify_tasks(plan, model, reading)
    choice = _open_choice(reading, choose, spec.with_model)
    return JoinSpec(spec, plan.sides, output, identity, choice=choice)


def let_tuples_move(join: JoinSpec) -> JoinSpec:
    """Return a join of two streams whose stored tuples move to newer units when their unit leaves."""
    choice = join.choice
    if choice is not None:
        choice = replace(choice, fit=partial(_fit_moving, choice.fit))
    return replace(join, spec=_move(join.spec), choice=choice)


def _move(spec: EngineSpec) -> MovingSpec:
    assert isinstance(spec, TwoStreamSpec)
    return MovingSpec(spec)


def _fit_moving(fit: Callable[[int], Fitted], partitions: int) -> Fitted:
    fitted = fit(partitions)
    return fitted._replace(spec=_move(fitted.spec))


def _describe_unit(plan: PhysicalPlan, condition: Condition, is_ordered: bool = False) -> UnitSpec:
    return UnitSpec(condition, plan.indexes, plan.archive_period_us, plan.counts, is_ordered)


def _describe_units(plan: PhysicalPlan, model: Model) -> TwoStreamSpec:
    return TwoStreamSpec(_describe_unit(plan, plan.condition), model)


def _describe_chain(plan: PhysicalPlan, model: Chain) -> HandshakeSpec:
    return HandshakeSpec(plan.condition, plan.indexes, plan.archive_period_us, model)


TASK_JOINS: Mapping[str, Callable[[PhysicalPlan, Any], TaskJoin]] = {
    UNITS: _describe_units,
    HANDSHAKE: _describe_chain,
}
"""For each name that ``Model.engine`` returns, the function that describes one of several tasks."""


# A model that the planner has chosen


def _read_session(streams: Sequence[DataFrame], choose: Choose | None = None) -> Reading:
    spark = streams[0].sparkSession
    return Reading(is_case_sensitive(spark), None if choose is None else count_partitions(spark))


def _open_choice(reading: Reading, choose: Choose | None, make: Callable[[Any], EngineSpec]) -> Choice | None:
    if choose is None or reading.chosen_for is None:
        return None
    return Choice(reading.chosen_for, partial(_fit, choose, make))


def _fit(choose: Choose, make: Callable[[Any], EngineSpec], partitions: int) -> Fitted:
    model = choose(partitions)
    return Fitted(make(model), identify_model(model, Reading(chosen_for=partitions)))
