"""Looks the tuples of a stream, or the rows of a batch DataFrame, up in a staged table."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from thetastream.lowering.domains import quote
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.flow import CANDIDATE
from thetastream.runtime.table_runs import (
    LookupFlow,
    StagedTable,
    TableFolder,
    make_deciding_step,
    make_lookup_step,
)
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
    first = flow.candidates or flow.output
    columns = parse_columns(first.columns).add(COUNTERS, StringType())
    blocks = select_block_columns(flow.table, table).schema
    carried = StructType([blocks[one.block_column] for one in flow.table.carried])
    payload = to_arrow_schema(carried, timezone=zone)
    results = to_arrow_schema(columns, timezone=zone)
    read = read_task if is_streaming else _read_batch_task
    step = make_lookup_step(flow, folder, staged, payload, results, read_task=read)
    flat = select_block_columns(flow.stream, stream)
    filled = fill_up(flat, f"a tuple of stream {flow.stream.alias!r}")
    found = run_step(filled, step, columns, f"look {flow.stream.alias} up in {flow.table.alias}")
    if is_streaming:
        watch_queries(spark)
        plan = {"words": {}, "lookup": [flow.stream.alias, flow.table.alias]}
        found = observe(found, flow.name, plan)
    else:
        found = found.where(F.col(COUNTERS).isNull())
    found = restore(found.drop(COUNTERS), first)
    return found if flow.candidates is None else restore(_decide(flow, found, zone), flow.output)


def _decide(flow: LookupFlow, candidates: DataFrame, zone: str | None) -> DataFrame:
    """Answer tuples, from the candidate rows that Spark has left. It is a step of the same task."""
    columns = parse_columns(flow.output.columns)
    step = make_deciding_step(flow, to_arrow_schema(columns, timezone=zone))
    rows = fill_up(candidates.select(f"{quote(CANDIDATE)}.*"), f"a tuple of stream {flow.stream.alias!r}")
    return run_step(rows, step, columns, f"answer {flow.stream.alias}")


def _read_batch_task() -> TaskFacts:
    """Read the facts of a task over a batch DataFrame.

    A function in ``foreachBatch`` makes its batch DataFrames anew in each epoch, so no version is written
    down for the epoch.
    """
    return read_task()._replace(epoch=None)
