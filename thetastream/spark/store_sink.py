"""Spark's sink ``thetastream_store``, which puts the rows of a query into a store.

    task: Arrow batches -> stage -> name      driver: names of all tasks -> commit of (query, epoch)

If a crash comes between the commit of the store and Spark's own commit, Spark runs the epoch again. The store
knows the epoch then and adds nothing. It works on Spark Connect too, because Spark runs both halves.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from thetastream.spark.exchange import read_partition
from thetastream.spark.task_properties import read_query, read_task_epoch
from thetastream.stores import Store
from thetastream.stores.description import Description
from thetastream.stores.staged import Origin, Staged

FORMAT = "thetastream_store"


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task has staged, and for which query."""

    query: str
    staged: tuple[Staged, ...]


@dataclass(frozen=True)
class Target:
    """A store and what it holds. It is pickled and sent to the workers."""

    store: Store
    description: Description

    def stage(self, batches: Iterator[pa.RecordBatch]) -> tuple[Staged, ...]:
        """Stage the rows of a task."""
        origin = Origin(read_query(), read_task_epoch(), str(read_partition()))
        stage = self.store.open_stage(origin, self.description)
        for batch in batches:
            stage.add(fit(batch, self.description.schema))
        staged = stage.close()
        return () if staged is None else (staged,)


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch the schema of a store. Names, time zones and marks of NULL may differ, values do not."""
    arrays = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class StoreWriter(DataSourceStreamArrowWriter):
    """Stages the rows of each task, and commits each epoch."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return StagedRows(read_query(), self._target.stage(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, StagedRows)]
        if written:
            staged = [one for message in written for one in message.staged]
            self._target.store.commit(written[0].query, batchId, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what is not named is swept."""


class StoreSink(DataSource):
    """Spark's data source ``thetastream_store``, which has the option ``target``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> StoreWriter:
        return StoreWriter(cloudpickle.loads(base64.b64decode(self.options["target"])))


def write_into(rows: DataFrame, target: Target) -> "DataStreamWriter":
    """Describe the query that puts ``rows`` into a store."""
    rows.sparkSession.dataSource.register(StoreSink)
    packed = base64.b64encode(cloudpickle.dumps(target)).decode()  # type: ignore[no-untyped-call]
    return rows.writeStream.format(FORMAT).option("target", packed).outputMode("append")
