"""Looks the tuples of a stream, or the rows of a batch DataFrame, up in a staged table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from thetastream.core.columns import PARTITION
from thetastream.lowering.domains import quote
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.flow import CANDIDATE
from thetastream.runtime.lookup_steps import (
    LookupFlow,
    make_deciding_step,
    make_lookup_step,
    make_partition_step,
)
from thetastream.runtime.table_epochs import StagedTable
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.task_facts import ReadTask, TaskFacts
from thetastream.spark.dataflow.exchange import list_hashable, select_block_columns
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.stages import parse_columns, restore
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.observe.listener import watch_queries
from thetastream.spark.observe.metrics import observe
from thetastream.spark.session.zones import read_zone
from thetastream.spark.task_properties import read_task


def look_up(
    flow: LookupFlow, stream: DataFrame, table: DataFrame, folder: TableFolder, staged: StagedTable
) -> DataFrame:
    """Look the tuples of a stream, or the rows of a batch DataFrame, up in a staged table.

    Returns the columns that the user gets. If the table is larger than the cache of a host, an exchange first
    brings tuples that meet the same rows together.
    """
    spark, is_streaming = stream.sparkSession, stream.isStreaming
    zone = read_zone(spark)
    first = flow.candidates or flow.output
    columns = parse_columns(first.columns).add(COUNTERS, StringType())
    blocks = select_block_columns(flow.table, table).schema
    carried = StructType([blocks[one.block_column] for one in flow.table.carried])
    payload = to_arrow_schema(carried, timezone=zone)
    results = to_arrow_schema(columns, timezone=zone)
    read = read_task if is_streaming else _read_batch_task
    step = make_lookup_step(flow, folder, staged, payload, results, read_task=read)
    flat = select_block_columns(flow.stream, stream)
    if staged.n_partitions > 1:
        flat = _divide(flow, flat, folder, staged, read)
    found = run_step(
        _fill_up(flow, flat), step, columns, f"look {flow.stream.alias} up in {flow.table.alias}"
    )
    if is_streaming:
        watch_queries(spark)
        plan = {"words": flow.words, "lookup": [flow.stream.alias, flow.table.alias]}
        found = observe(found, flow.name, plan)
    else:
        found = found.where(F.col(COUNTERS).isNull())
    found = restore(found.drop(COUNTERS), first)
    return found if flow.candidates is None else restore(_decide(flow, found, zone), flow.output)


def _divide(
    flow: LookupFlow, flat: DataFrame, folder: TableFolder, staged: StagedTable, read: ReadTask
) -> DataFrame:
    """Bring tuples that meet the same runs of a table to one task, because no host has room for all runs.

    Tuples that can have no partner are spread by their hash. Where a tuple goes depends on nothing else than
    its values and the version, so a task that runs again sends it to the same place.
    """
    step = make_partition_step(flow, folder, staged, read_task=read)
    columns = StructType([*flat.schema, StructField(PARTITION, IntegerType())])
    divided = run_step(_fill_up(flow, flat), step, columns, f"divide {flow.stream.alias}")
    hashed = [F.col(quote(name)) for name in list_hashable(flat.schema)]
    by_hash = F.pmod(F.xxhash64(*(hashed or [F.lit(0)])), F.lit(staged.n_partitions)).cast("int")
    chosen = F.coalesce(F.col(quote(PARTITION)), by_hash)
    return divided.repartitionById(staged.n_partitions, chosen).drop(PARTITION)


def _fill_up(flow: LookupFlow, flat: DataFrame) -> DataFrame:
    return fill_up(flat, f"a tuple of stream {flow.stream.alias!r}")


def _decide(flow: LookupFlow, candidates: DataFrame, zone: str | None) -> DataFrame:
    """Answer tuples, from the candidate rows that Spark has left. It is a step of the same task."""
    columns = parse_columns(flow.output.columns)
    step = make_deciding_step(flow, to_arrow_schema(columns, timezone=zone))
    rows = _fill_up(flow, candidates.select(f"{quote(CANDIDATE)}.*"))
    return run_step(rows, step, columns, f"answer {flow.stream.alias}")


def _read_batch_task() -> TaskFacts:
    """Read the facts of a task over a batch DataFrame.

    A function in ``foreachBatch`` makes its batch DataFrames anew in each epoch, so no version is written
    down for the epoch.
    """
    return read_task()._replace(epoch=None)
