"""Turns plans into joins that ``thetastream.spark.build`` can run, with one function per family of joins."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from thetastream.aggregate.engine import FoldedSpec
from thetastream.core.condition import Condition
from thetastream.engine.handshake.spec import HandshakeSpec
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.shared_tasks import SharedTasksSpec, TaskSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.models.base import Model
from thetastream.models.chain import Chain
from thetastream.order import Order
from thetastream.order.engine import PunctuatedSpec
from thetastream.plan.folding import Folding
from thetastream.plan.graph import LoweredGraph
from thetastream.plan.identity import identify_multiway, identify_tasks, identify_two_streams
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.tasks import TasksPlan
from thetastream.spark.build import Join
from thetastream.spark.output import ordered_pairs, pairs, tagged_pairs, views


def two_stream_join(
    plan: PhysicalPlan, model: Model, streams: Sequence[DataFrame], order: Order | None = None
) -> Join:
    """Join two streams under a model whose units send no messages."""
    spark = streams[0].sparkSession
    unit = _unit(plan, plan.condition, order is not None)
    output = pairs(spark, plan.sides, plan.residual) if order is None else ordered_pairs(spark, plan)
    join = TwoStreamSpec(unit, model)
    spec: EngineSpec = join
    if order is not None and order.is_punctuated:
        zone = spark.conf.get("spark.sql.session.timeZone")
        columns = to_arrow_schema(output.columns, timezone=zone)
        spec = PunctuatedSpec(join, order, columns)
    return Join(spec, plan.sides, output, identify_two_streams(plan, model, order), order)


def folded_join(plan: PhysicalPlan, model: Model, streams: Sequence[DataFrame], folding: Folding) -> Join:
    """Join two streams, with units that aggregate their matches into views."""
    output, fold, condition = views(streams, plan, folding)
    spec = FoldedSpec(TwoStreamSpec(_unit(plan, condition), model), fold)
    return Join(spec, plan.sides, output, identify_two_streams(plan, model, None, folding))


def handshake_join(plan: PhysicalPlan, model: Chain, streams: Sequence[DataFrame]) -> Join:
    """Join two streams on a handshake chain, whose workers pass tuples on to their neighbours."""
    spec = HandshakeSpec(plan.condition, plan.indexes, plan.archive_period_us, model)
    output = pairs(streams[0].sparkSession, plan.sides, plan.residual)
    return Join(spec, plan.sides, output, identify_two_streams(plan, model))


def multiway_join(plan: LoweredGraph, spec: MultiwaySpec, streams: Sequence[DataFrame]) -> Join:
    """Join two or more streams, hop by hop."""
    output = pairs(streams[0].sparkSession, plan.sides, plan.residual)
    return Join(spec, plan.sides, output, identify_multiway(plan, spec))


def shared_tasks_join(plan: TasksPlan, model: Model, streams: Sequence[DataFrame]) -> Join:
    """Run several joins of the same two streams behind one exchange."""
    tasks = tuple(
        TaskSpec(task.name, _unit(task.plan, task.plan.condition), task.passes) for task in plan.tasks
    )
    output = tagged_pairs(streams[0].sparkSession, plan)
    return Join(SharedTasksSpec(tasks, model), plan.sides, output, identify_tasks(plan, model))


def _unit(plan: PhysicalPlan, condition: Condition, is_ordered: bool = False) -> UnitSpec:
    return UnitSpec(condition, plan.indexes, plan.archive_period_us, plan.counts, is_ordered)
