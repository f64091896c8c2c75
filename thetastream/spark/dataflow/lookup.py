"""Stages a table as runs of an index, and looks the tuples of a stream up in it."""

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from thetastream.runtime.table_runs import LookupFlow, StagedTable, TableFolder, make_lookup_step
from thetastream.spark.dataflow.exchange import select_block_columns
from thetastream.spark.dataflow.stages import parse_columns, restore
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.session.configure import count_partitions
from thetastream.spark.task_properties import read_task


def stage_table(flow: LookupFlow, table: DataFrame, folder: TableFolder) -> StagedTable:
    """Write the rows of a table as runs of the index. This runs a job."""
    side = flow.sides[flow.lookup.side.other]
    flat = select_block_columns(side, table).coalesce(count_partitions(table.sparkSession))
    filled = fill_up(flat, f"a row of table {side.alias!r}")
    step = folder.make_staging_step(flow.lookup.plan, read_task)
    staged = filled.mapInArrow(step, "run string, n_rows bigint, nbytes bigint").collect()
    return StagedTable(tuple(sorted(row.run for row in staged)), str(table.semanticHash()))


def look_up(
    flow: LookupFlow, stream: DataFrame, table: DataFrame, folder: TableFolder, staged: StagedTable
) -> DataFrame:
    """Look the tuples of a stream up in a staged table; return the columns that the user gets."""
    spark, side = stream.sparkSession, flow.lookup.side
    zone = spark.conf.get("spark.sql.session.timeZone")
    columns = parse_columns(spark, flow.output.columns)
    blocks = select_block_columns(flow.sides[side.other], table).schema
    carried = StructType([blocks[one.block_column] for one in flow.sides[side.other].carried])
    payload = to_arrow_schema(carried, timezone=zone)
    results = to_arrow_schema(columns, timezone=zone)
    step = make_lookup_step(flow, folder, staged, payload, results, read_task=read_task)
    flat = select_block_columns(flow.sides[side], stream)
    found = fill_up(flat, f"a tuple of stream {flow.sides[side].alias!r}").mapInArrow(step, columns)
    return restore(found, flow.output)
