"""Builds the DataFrame of a join, for any engine.

    streams, mailbox -> exchange -> units -> results -> columns as the user had them -> residual filters
                                      |
                                      +-> messages, to the mailbox

On streams, the units run in a stateful operator. On batch DataFrames, the units read the same rows in one
pass and keep their state in memory.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType, TimestampType

from thetastream.core.columns import CHANGE_TYPE, MARK, BlockColumn, ChangeType
from thetastream.core.errors import QueryError
from thetastream.core.identity import Identity, digest
from thetastream.core.records import encode
from thetastream.engine.clock import EarlyWatermark
from thetastream.engine.order import tell_columns
from thetastream.engine.shedding import Shedding
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.control.access import ControlAccess
from thetastream.runtime.control.plan import ControlPlan, Rules, encode_plan
from thetastream.runtime.emit import BlockEmitter, Emitter, FrameEmitter
from thetastream.runtime.epoch import Coordination, UnitEpoch
from thetastream.runtime.flow import Flow, RunContext, Staging, UnitStage
from thetastream.runtime.late_files import LateColumn, LateFiles
from thetastream.runtime.punctuations import Punctuations
from thetastream.runtime.shed_loads import ShedLoads
from thetastream.spark.dataflow.exchange import build_exchange, list_announced, select_block_columns
from thetastream.spark.dataflow.operator import add_counters, run_batch_units, run_units
from thetastream.spark.dataflow.stages import (
    STAGED_COLUMNS,
    StagingEmitter,
    decide,
    gather_in_order,
    identify_query,
    parse_columns,
    restore,
)
from thetastream.spark.event_time import count_watermarks
from thetastream.spark.observe import metrics
from thetastream.spark.observe.listener import watch_queries
from thetastream.spark.session.configure import read_meaning
from thetastream.spark.session.zones import TIME_ZONE, read_zone
from thetastream.spark.sinks.store import ParquetSink
from thetastream.spark.sources import register_source
from thetastream.spark.sources.control import read_control
from thetastream.spark.sources.control_and_mailbox import read_controlled_mailbox
from thetastream.spark.sources.identity import read_identity
from thetastream.spark.sources.mailbox import read_mailbox
from thetastream.spark.task_properties import read_task


def build(
    flow: Flow,
    streams: Sequence[DataFrame],
    run: RunContext | None,
    staging: Staging | None = None,
    punctuations: Punctuations | None = None,
) -> DataFrame:
    """Build the joined DataFrame, with the columns that the user gets by the output of the last units.

    Parameters
    ----------
    flow : Flow
    streams : sequence of DataFrame
        The inputs in the order of ``flow.sides``, all streaming or all batch.
    run : RunContext or None
        The settings of a query over streams, or None if the inputs are batch.
    staging : Staging, optional
        What units stage in a store themselves. The result then has one row for each unit that has staged
        results. Such a join is streaming, and has neither an order nor residual filters.
    punctuations : Punctuations, optional
        Which rows of streams are punctuations.

    Raises
    ------
    QueryError
        CANNOT_SCALE if units of this engine cannot change.
    """
    assert staging is None or run is not None
    results = _batch(flow, streams) if run is None else _stream(flow, streams, run, staging, punctuations)
    if staging is not None:
        return results
    first, *later = flow.stages
    results = restore(results, first.output)
    for stage in later:
        results = restore(decide(stage, results, flow, run), stage.output)
    return results


def _stream(
    flow: Flow,
    streams: Sequence[DataFrame],
    run: RunContext,
    staging: Staging | None,
    punctuations: Punctuations | None,
) -> DataFrame:
    """Run the units of the first stage on streams; return the columns that leave them."""
    spark = streams[0].sparkSession
    meaning = read_meaning(spark)
    query, zone = identify_query(flow, meaning), meaning[TIME_ZONE]
    columns = parse_columns(flow.stages[0].output.columns)
    stage, rules = _tell_columns(flow.stages[0], columns, zone), flow.rules
    spec = stage.spec
    if rules is not None and spec.scaling_obstacle is not None:
        raise QueryError(
            "CANNOT_SCALE",
            f"max_units must be left out, because the join cannot scale: {spec.scaling_obstacle}",
        )
    watch_queries(spark)
    register_source(spark, ParquetSink)
    # 1. Bring tuples and messages to the units.
    fitted = FittedSpec(spec, stage.choice, 0 if rules is None else rules.max_units)
    source = _read_source(spark, fitted, query, run.mailbox, rules)
    coordination = replace(_coordinate(flow, streams, run, digest(query)), punctuations=punctuations)
    rows = build_exchange(fitted, flow.sides, streams, source, coordination)
    # 2. Run the units.
    delays_us = {
        side.alias: int(field.metadata[MARK]) * 1000
        for side, stream in zip(flow.sides, streams, strict=True)
        for field in stream.schema
        if MARK in (field.metadata or {})
    }
    late = None if run.late is None else _describe_late(flow, streams, run.late, digest(query))

    def epoch_of(emitter: Emitter) -> UnitEpoch:
        return UnitEpoch(
            fitted,
            query,
            emitter,
            run,
            read_task,
            late=late,
            delays_us=delays_us,
            coordination=coordination,
        )

    # 3. Report the counters.
    plan = metrics.describe_plan(flow, query)
    if staging is not None:
        emitted = StructType([columns[name] for name in staging.columns])
        block = to_arrow_schema(emitted, timezone=zone)
        emit = partial(StagingEmitter, block=block, staging=staging)
        staged = run_units(rows, STAGED_COLUMNS, emit, spec.has_event_time, epoch_of, zone)
        return metrics.observe(staged, digest(query), plan)
    if stage.order is None:
        results = run_units(rows, columns, FrameEmitter, spec.has_event_time, epoch_of, zone)
    else:
        # Ordered results cross a second exchange, as blocks.
        results = run_units(rows, columns, BlockEmitter, spec.has_event_time, epoch_of, zone)
        results = gather_in_order(results, add_counters(columns), stage.order)
    return metrics.observe(results, digest(query), plan)


def _tell_columns(stage: UnitStage, columns: StructType, zone: str) -> UnitStage:
    """Return the stage whose units know the types of results, if they add punctuations to them."""
    if stage.order is None or not stage.order.is_punctuated:
        return stage
    return stage.with_change(partial(tell_columns, to_arrow_schema(columns, timezone=zone)))


def _coordinate(flow: Flow, streams: Sequence[DataFrame], run: RunContext, join: str) -> Coordination:
    """Find what the routers and the units of a join agree on; ``join`` is its digest."""
    shed = None
    if run.shed is not None:
        shed = ShedLoads(Shedding(run.shed, tuple(flow.keys), flow.places), run.mailbox, join)
    if flow.rules is not None:
        return Coordination(shed, ControlAccess(run.mailbox, join))
    return Coordination(shed, early=_find_early_watermark(flow, streams))


def _find_early_watermark(flow: Flow, streams: Sequence[DataFrame]) -> EarlyWatermark | None:
    """Return how units compute the watermark before 1970; None if they need none, or cannot know it.

    They know it if each stream has a single watermark. The result of another join has several of them.
    """
    if flow.waits_by is None or any(count_watermarks(stream) != 1 for stream in streams):
        return None
    delays_us = [
        int(field.metadata[MARK]) * 1000
        for stream in streams
        for field in stream.schema
        if MARK in (field.metadata or {})
    ]
    if len(delays_us) != len(streams):
        return None
    policy = streams[0].sparkSession.conf.get("spark.sql.streaming.multipleWatermarkPolicy", "min")
    return EarlyWatermark(flow.waits_by, tuple(delays_us), policy == "max")


def _read_source(
    spark: SparkSession, fitted: FittedSpec, query: Identity, mailbox: str, rules: Rules | None
) -> DataFrame:
    """Make the stream of messages and notices, whose source keeps the identity of the query.

    Spark asks the source for offsets before each epoch. It refuses a checkpoint of another query.
    """
    spec = fitted.planned
    if rules is None:
        if spec.has_messages:
            return read_mailbox(spark, mailbox, query, list_announced(fitted))
        return read_identity(spark, query, list_announced(fitted), spec.router.places is not None)
    settings = {"root": mailbox, "join": digest(query), "rules": encode(rules)}
    first = encode_plan(ControlPlan.begin(spec.router.model))
    partitions = None if fitted.choice is None else fitted.choice.partitions
    if spec.has_messages:
        return read_controlled_mailbox(spark, mailbox, query, fitted.keys, settings, first, partitions)
    return read_control(spark, query, settings, first, partitions)


def _describe_late(flow: Flow, streams: Sequence[DataFrame], folder: str, name: str) -> LateFiles:
    """Describe the columns of late tuples. Blocks hold a TIMESTAMP as a number of microseconds."""
    described = []
    for side, stream in zip(flow.sides, streams, strict=True):
        blocks = select_block_columns(side, stream).schema
        columns = []
        for carried in side.carried:
            is_instant = stream.schema[carried.field].dataType == TimestampType()
            block_type = to_arrow_type(blocks[carried.block_column].dataType)
            type_ = pa.timestamp("us", "UTC") if is_instant else block_type
            columns.append(LateColumn(carried.field, BlockColumn(carried.block_column), type_))
        if side.has_deletes:
            columns.append(LateColumn(CHANGE_TYPE, ChangeType(), pa.string()))
        described.append((side.alias, tuple(columns)))
    return LateFiles(folder, name, tuple(described))


def _batch(flow: Flow, streams: Sequence[DataFrame]) -> DataFrame:
    """Run the units of the first stage on batch DataFrames; return the columns that leave them."""
    zone = read_zone(streams[0].sparkSession)
    columns = parse_columns(flow.stages[0].output.columns)
    stage = _tell_columns(flow.stages[0], columns, zone)
    rows = build_exchange(FittedSpec(stage.spec), flow.sides, streams, None)
    results = run_batch_units(rows, stage.spec, columns, zone)
    return results if stage.order is None else gather_in_order(results, columns, stage.order)
