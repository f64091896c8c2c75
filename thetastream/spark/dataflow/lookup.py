"""Looks the tuples of a stream, or the rows of a batch DataFrame, up in a staged table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.table_runs import LookupFlow, StagedTable, TableFolder, make_lookup_step
from thetastream.runtime.task_facts import TaskFacts
from thetastream.spark.dataflow.exchange import select_block_columns
from thetastream.spark.dataflow.named_steps import run_step
from thetastream.spark.dataflow.stages import parse_columns, restore
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.observe.listener import watch_queries
from thetastream.spark.observe.metrics import observe
from thetastream.spark.task_properties import read_task


def look_up(
    flow: LookupFlow, stream: DataFrame, table: DataFrame, folder: TableFolder, staged: StagedTable
) -> DataFrame:
    """Look the tuples of a stream, or the rows of a batch DataFrame, up in a staged table.

    Returns the columns that the user gets.
    """
    spark, is_streaming = stream.sparkSession, stream.isStreaming
    zone = spark.conf.get("spark.sql.session.timeZone")
    columns = parse_columns(flow.output.columns).add(COUNTERS, StringType())
    blocks = select_block_columns(flow.table, table).schema
    carried = StructType([blocks[one.block_column] for one in flow.table.carried])
    payload = to_arrow_schema(carried, timezone=zone)
    results = to_arrow_schema(columns, timezone=zone)
    read = read_task if is_streaming else _read_batch_task
    step = make_lookup_step(flow, folder, staged, payload, results, read_task=read)
    flat = select_block_columns(flow.stream, stream)
    filled = fill_up(flat, f"a tuple of stream {flow.stream.alias!r}")
    found = run_step(filled, step, columns, f"look {flow.stream.alias} up in {flow.table.alias}")
    if not is_streaming:
        return restore(found.where(F.col(COUNTERS).isNull()), flow.output)
    watch_queries(spark)
    plan = {"words": {}, "lookup": [flow.stream.alias, flow.table.alias]}
    return restore(observe(found, flow.name, plan), flow.output)


def _read_batch_task() -> TaskFacts:
    """Read the facts of a task over a batch DataFrame.

    A function in ``foreachBatch`` makes its batch DataFrames anew in each epoch, so no version is written
    down for the epoch.
    """
    return read_task()._replace(epoch=None)
