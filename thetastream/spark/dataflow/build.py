"""Builds the DataFrame of a join, for any engine.

    streams, mailbox -> exchange -> units -> results -> columns as the user had them -> residual filters
                                      |
                                      +-> messages, to the mailbox

On streams, the units run in a stateful operator. On batch DataFrames, the units read the same rows in one
pass and keep their state in memory.
"""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import StructType, TimestampType

from thetastream.core.columns import MARK
from thetastream.core.errors import QueryError
from thetastream.core.identity import Identity, digest
from thetastream.engine.early_watermark import EarlyWatermark
from thetastream.engine.shedding import Shedding
from thetastream.lowering.identity import identify_settings
from thetastream.runtime.choice import FittedSpec
from thetastream.runtime.control.access import Control, ControlAccess
from thetastream.runtime.control.plan import ControlPlan
from thetastream.runtime.emit import BlockEmitter, Emitter, FrameEmitter
from thetastream.runtime.epoch import UnitEpoch
from thetastream.runtime.flow import JoinSpec, Staging
from thetastream.runtime.idle.reports import IdleReports
from thetastream.runtime.late_files import LateColumn, LateFiles
from thetastream.runtime.shed_loads import ShedLoads
from thetastream.spark.dataflow.deciding import decide
from thetastream.spark.dataflow.exchange import build_exchange, list_announced, select_block_columns
from thetastream.spark.dataflow.operator import add_counters, run_batch_units, run_units
from thetastream.spark.dataflow.ordered import gather_in_order
from thetastream.spark.dataflow.staging import COLUMNS as STAGED_COLUMNS
from thetastream.spark.dataflow.staging import StagingEmitter
from thetastream.spark.event_time import count_watermarks
from thetastream.spark.observe import metrics
from thetastream.spark.observe.listener import watch_queries
from thetastream.spark.session.configure import read_meaning
from thetastream.spark.sinks.store import ParquetSink
from thetastream.spark.sources.control import read_control
from thetastream.spark.sources.control_and_mailbox import read_controlled_mailbox
from thetastream.spark.sources.identity import read_identity
from thetastream.spark.sources.mailbox import read_mailbox
from thetastream.spark.sources.registration import register_source


def build(
    join: JoinSpec,
    streams: Sequence[DataFrame],
    mailboxes: str = "",
    cache_folder: str | None = None,
    late: str | None = None,
    idle: IdleReports | None = None,
    shedding: Shedding | None = None,
    staging: Staging | None = None,
    control: Control | None = None,
) -> DataFrame:
    """Build the joined DataFrame, with the columns that the user gets by ``join.output``.

    Parameters
    ----------
    join : JoinSpec
    streams : sequence of DataFrame
        The inputs in the order of ``join.sides``, all streaming or all batch.
    mailboxes : str
        The folder of mailboxes, which the driver and all workers must reach. Only engines that send messages
        and load shedders use it.
    cache_folder : str, optional
        A folder on each host for mapped segments. If it is left out, Spark's local directory is used.
    late : str, optional
        The folder of late tuples, which all workers must reach. If it is left out, late tuples are only
        counted.
    idle : IdleReports, optional
        What units report about streams that may be idle.
    shedding : Shedding, optional
        The load shedder of a query over streams. Batch DataFrames are joined whole.
    control : Control, optional
        How the units may change while the query runs. If it is left out, they do not change.
    staging : Staging, optional
        What units stage in a store themselves. The result then has one row for each unit that has staged
        results. Such a join is streaming, and has neither an order nor residual filters.

    Raises
    ------
    QueryError
        CANNOT_SCALE if units of this engine cannot change.
    """
    if staging is not None:
        return _stream(join, streams, mailboxes, cache_folder, late, idle, shedding, staging, control)
    if any(stream.isStreaming for stream in streams):
        results = _stream(join, streams, mailboxes, cache_folder, late, idle, shedding, None, control)
    else:
        results = _batch(join, streams)
    deciding = join.deciding
    if deciding is not None:
        if control is not None:
            deciding = deciding.with_slots(control.rules.max_units)
        results = decide(deciding, join.output.restore(results), join.identity, cache_folder)
        return deciding.output.restore(results)
    return join.output.restore(results)


def _stream(
    join: JoinSpec,
    streams: Sequence[DataFrame],
    mailboxes: str,
    cache_folder: str | None,
    late: str | None,
    idle: IdleReports | None,
    shedding: Shedding | None,
    staging: Staging | None,
    control: Control | None,
) -> DataFrame:
    spec, output = join.spec, join.output
    spark = streams[0].sparkSession
    query = {**join.identity, **identify_settings(read_meaning(spark))}
    if control is not None and spec.scaling_obstacle is not None:
        raise QueryError(
            "CANNOT_SCALE",
            f"max_units must be left out, because the join cannot scale: {spec.scaling_obstacle}",
        )
    watch_queries(spark)
    register_source(spark, ParquetSink)
    # 1. Bring tuples and messages to the units.
    fitted = FittedSpec(spec, join.choice, 0 if control is None else control.rules.max_units)
    access = None if control is None else ControlAccess(control.root, digest(query))
    source = _read_source(spark, fitted, query, mailboxes, control)
    shed = None if shedding is None else ShedLoads(shedding, mailboxes, digest(query))
    early = None if control is not None else _find_early_watermark(join, streams)
    rows = build_exchange(fitted, join.sides, streams, source, shed, access, early)
    # 2. Run the units.
    delays_us = {
        side.alias: int(field.metadata[MARK]) * 1000
        for side, stream in zip(join.sides, streams, strict=True)
        for field in stream.schema
        if MARK in (field.metadata or {})
    }
    files = None if late is None else _describe_late(join, streams, late, digest(query))

    def epoch_of(emitter: Emitter) -> UnitEpoch:
        return UnitEpoch(
            fitted, query, emitter, mailboxes, cache_folder, files, idle, shed, delays_us, access, early
        )

    # 3. Report the counters.
    plan = metrics.describe_plan(spec.router.model, query)
    if staging is not None:
        zone = spark.conf.get("spark.sql.session.timeZone")
        emitted = StructType([output.columns[name] for name in staging.columns])
        block = to_arrow_schema(emitted, timezone=zone)
        emit = partial(StagingEmitter, block=block, staging=staging)
        staged = run_units(rows, STAGED_COLUMNS, emit, spec.has_event_time, epoch_of)
        return metrics.observe(staged, digest(query), plan)
    if join.order is None:
        results = run_units(rows, output.columns, FrameEmitter, spec.has_event_time, epoch_of)
    else:
        # Ordered results cross a second exchange, as blocks.
        results = run_units(rows, output.columns, BlockEmitter, spec.has_event_time, epoch_of)
        results = gather_in_order(results, add_counters(output.columns), join.order)
    return metrics.observe(results, digest(query), plan)


def _find_early_watermark(join: JoinSpec, streams: Sequence[DataFrame]) -> EarlyWatermark | None:
    """Return how units compute the watermark before 1970; None if they need none, or cannot know it.

    They know it if each stream has a single watermark. The result of another join has several of them.
    """
    if join.waits_by is None or any(count_watermarks(stream) != 1 for stream in streams):
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
    return EarlyWatermark(join.waits_by, tuple(delays_us), policy == "max")


def _read_source(
    spark: SparkSession, fitted: FittedSpec, query: Identity, mailboxes: str, control: Control | None
) -> DataFrame:
    """Make the stream of messages and notices, whose source keeps the identity of the query.

    Spark asks the source for offsets before each epoch. It refuses a checkpoint of another query.
    """
    spec = fitted.planned
    if control is None:
        if spec.has_messages:
            return read_mailbox(spark, mailboxes, query, list_announced(fitted))
        return read_identity(spark, query)
    settings = {"root": control.root, "join": digest(query), "rules": control.rules.as_json()}
    first = ControlPlan.begin(spec.router.model).as_json()
    partitions = None if fitted.choice is None else fitted.choice.partitions
    if spec.has_messages:
        return read_controlled_mailbox(spark, mailboxes, query, fitted.keys, settings, first, partitions)
    return read_control(spark, query, settings, first, partitions)


def _describe_late(join: JoinSpec, streams: Sequence[DataFrame], folder: str, name: str) -> LateFiles:
    """Describe the columns of late tuples. Blocks hold a TIMESTAMP as a number of microseconds."""
    described = []
    for side, stream in zip(join.sides, streams, strict=True):
        blocks = select_block_columns(side, stream).schema
        columns = []
        for carried in side.carried:
            is_instant = stream.schema[carried.field].dataType == TimestampType()
            block_type = to_arrow_type(blocks[carried.block_column].dataType)
            type_ = pa.timestamp("us", "UTC") if is_instant else block_type
            columns.append(LateColumn(carried.field, carried.block_column, type_))
        described.append((side.alias, tuple(columns)))
    return LateFiles(folder, name, tuple(described))


def _batch(join: JoinSpec, streams: Sequence[DataFrame]) -> DataFrame:
    columns = join.output.columns
    rows = build_exchange(FittedSpec(join.spec), join.sides, streams, None)
    results = run_batch_units(rows, join.spec, columns)
    return results if join.order is None else gather_in_order(results, columns, join.order)
