"""Spark's sink ``thetastream_store``, which puts the rows of a query into a store.

    task: Arrow batches -> stage -> name      driver: names of all tasks -> commit of (query, epoch)

If a crash comes between the commit of the store and Spark's own commit, Spark runs the epoch again. The store
then knows the epoch and adds nothing. The sink works on Spark Connect too, because Spark runs both halves of
it.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from thetastream.errors import QueryError
from thetastream.spark.data_sources import register_source
from thetastream.spark.staging import Target
from thetastream.spark.store_schema import describe
from thetastream.spark.task_properties import read_query
from thetastream.spark.wide_rows import drop_fillers, fill_up
from thetastream.stores import ParquetStore, read_store, write_store
from thetastream.stores.description import Description
from thetastream.stores.history import PAIR
from thetastream.stores.snapshots import Snapshots
from thetastream.stores.staged import BoundsFinder, Staged
from thetastream.stores.writer import UNKNOWN_WRITER, Writer

FORMAT = "thetastream_store"
CHECKPOINT = "checkpointLocation"
"""The option that names the checkpoint of a query."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task has staged, and for which query."""

    query: str
    staged: tuple[Staged, ...]


def stage_rows(batches: Iterator[pa.RecordBatch], target: Target) -> list[Staged]:
    """Stage the rows of a task. A last column ``PAIR`` has the times of joined pairs of punctuations."""
    stage, schema = target.open_stage(), target.description.schema
    pairs = BoundsFinder((PAIR,))
    for batch in map(drop_fillers, batches):
        if target.rule.punctuations is not None:
            pairs.add(batch)
            batch = batch.drop_columns([PAIR])
        stage.add(fit(batch, schema))
    staged = stage.close()
    return [] if staged is None else [replace(staged, bounds={**staged.bounds, **pairs.bounds})]


def read_staged(batches: Iterator[pa.RecordBatch]) -> list[Staged]:
    """Read what units have staged from their rows."""
    rows = (value for batch in batches for value in batch.column(0).to_pylist())
    return [Staged.from_json(json.loads(value)) for value in rows]


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the schema of a store. Names, time zones and marks of NULL may differ, values do not."""
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class StoreWriter(DataSourceStreamArrowWriter):
    """Stages the rows of each task, unless units have done so, and commits each epoch."""

    def __init__(self, target: Target, is_staged: bool, writer: Writer = UNKNOWN_WRITER) -> None:
        self._target, self._is_staged, self._writer = target, is_staged, writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = read_staged(iterator) if self._is_staged else stage_rows(iterator, self._target)
        return StagedRows(read_query(), tuple(staged))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, StagedRows)]
        if written:
            staged = [one for message in written for one in message.staged]
            target, clock_us = self._target, time.time_ns() // 1000
            target.store.commit(written[0].query, batchId, staged, target.rule, clock_us, self._writer)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what is not named is swept."""


class StoreSink(DataSource):
    """Spark's data source ``thetastream_store``, which has the options ``store``, ``description``,
    ``snapshots``, ``staged`` and ``beside_others``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> StoreWriter:
        description = Description.from_json(json.loads(self.options["description"]))
        rule = Snapshots(**json.loads(self.options["snapshots"]))
        target = Target(read_store(self.options["store"]), description, rule)
        return StoreWriter(target, self.options["staged"] == "true", read_writer(self.options))


class ParquetSink(DataSource):
    """Spark's data source ``thetastream_parquet``, for ``df.writeStream.format("thetastream_parquet")``.

    It has the options ``path``, ``time``, ``key`` and ``beside_others``. Several keys have commas between
    them.
    """

    @classmethod
    def name(cls) -> str:
        return "thetastream_parquet"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoreWriter:
        if not self.options.get("path"):
            raise QueryError("STORE_FOLDER", "a sink thetastream_parquet needs a folder; call start(folder)")
        if overwrite:
            what = "a sink thetastream_parquet only adds rows, and mode complete replaces them in each epoch"
            raise QueryError("SINK_MODE", f'{what}; write outputMode("append"), and group by window(...)')
        keys = [key.strip() for key in self.options.get("key", "").split(",")]
        description = describe(schema, self.options.get("time"), tuple(key for key in keys if key))
        store = ParquetStore(self.options["path"])
        store.describe(description)
        writer = read_writer(self.options)
        store.admit(writer)
        return StoreWriter(Target(store, description), is_staged=False, writer=writer)


def register_sinks(spark: SparkSession) -> None:
    """Make the sinks known to a session."""
    for sink in (StoreSink, ParquetSink):
        register_source(spark, sink)


def read_writer(options: Mapping[str, str]) -> Writer:
    """Read the checkpoint of a query from the options of its sink, among which Spark lists it."""
    return Writer(options.get(CHECKPOINT), options.get("beside_others", "").lower() == "true")


def write_into(rows: DataFrame, target: Target, is_staged: bool, writer: Writer) -> "DataStreamWriter":
    """Describe the query that puts ``rows`` into a store. They are results, or what units have staged."""
    register_sinks(rows.sparkSession)
    options = {
        "store": write_store(target.store),
        "description": json.dumps(target.description.as_json()),
        "snapshots": json.dumps(target.rule.as_json()),
        "staged": str(is_staged).lower(),
        "beside_others": str(writer.is_beside_others).lower(),
        **({} if writer.checkpoint is None else {CHECKPOINT: writer.checkpoint}),
    }
    filled = rows if is_staged else fill_up(rows, "a row for the store")
    return filled.writeStream.format(FORMAT).outputMode("append").options(**options)
