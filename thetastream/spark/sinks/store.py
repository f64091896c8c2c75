"""Spark's sink ``thetastream_store``, which puts the rows of a query into a store.

    task: Arrow batches -> stage -> name      driver: names of all tasks -> commit of (query, epoch)

If a crash comes between the commit of the store and Spark's own commit, Spark runs the epoch again. The store
then knows the epoch and adds nothing. The sink works on Spark Connect too, because Spark runs both halves of
it.

``describe`` describes the columns of a query for a store of results.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from thetastream.core.blocks import drop_fillers
from thetastream.core.columns import CHANGE_TYPE, MARK
from thetastream.core.errors import QueryError
from thetastream.lowering.query import RESULT_TIME
from thetastream.results.description import Description
from thetastream.results.snapshots import Snapshots
from thetastream.results.staged import Staged, find_type
from thetastream.results.store import Store
from thetastream.results.writer import UNKNOWN_WRITER, Writer
from thetastream.runtime.flow import Target
from thetastream.runtime.punctuations import Punctuations
from thetastream.spark.changes import is_changes
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.event_time import list_marked
from thetastream.spark.sources import register_source
from thetastream.spark.task_properties import read_task
from thetastream.stores import ParquetStore

FORMAT = "thetastream_store"
CHECKPOINT = "checkpointLocation"
"""The option that names the checkpoint of a query."""


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task has staged, and for which query."""

    query: str
    staged: tuple[Staged, ...]


def stage_rows(batches: Iterator[pa.RecordBatch], target: Target) -> list[Staged]:
    """Stage the rows of a task."""
    stage, schema = target.open_stage(read_task()), target.description.schema
    for batch in map(drop_fillers, batches):
        stage.add(fit(batch, schema))
    staged = stage.close()
    return [] if staged is None else [staged]


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

    def __init__(
        self,
        target: Target,
        is_staged: bool,
        writer: Writer = UNKNOWN_WRITER,
        punctuations: Punctuations | None = None,
    ) -> None:
        self._target, self._is_staged, self._writer = target, is_staged, writer
        self._punctuations = punctuations

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = read_staged(iterator) if self._is_staged else stage_rows(iterator, self._target)
        return StagedRows(read_task().query, tuple(staged))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, StagedRows)]
        if not written:
            return
        staged = [one for message in written for one in message.staged]
        target, query, clock_us = self._target, written[0].query, time.time_ns() // 1000
        found = {} if self._punctuations is None else self._punctuations.read(query, batchId)
        target.store.commit(query, batchId, staged, target.rule, clock_us, self._writer, punctuations=found)
        if self._punctuations is not None:
            self._punctuations.prune(query, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: what is not named is swept."""


class StoreSink(DataSource):
    """Spark's data source ``thetastream_store``, which has the options ``store``, ``description``,
    ``snapshots``, ``staged``, ``punctuations`` and ``beside_others``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> StoreWriter:
        description = Description.from_json(json.loads(self.options["description"]))
        rule = Snapshots(**json.loads(self.options["snapshots"]))
        target = Target(unpack_store(self.options["store"]), description, rule)
        root = self.options.get("punctuations")
        punctuations = None if root is None else Punctuations(root)
        is_staged, writer = self.options["staged"] == "true", read_writer(self.options)
        return StoreWriter(target, is_staged, writer, punctuations)


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


def pack_store(store: Store) -> str:
    """Write a store as text for an option.

    A class of the main program is sent by value, so that the process that reads the option needs no registry.
    """
    return b64encode(dumps(store)).decode()  # type: ignore[no-untyped-call]


def unpack_store(text: str) -> Store:
    """Read what ``pack_store`` wrote."""
    store: Store = loads(b64decode(text))
    return store


def write_into(
    rows: DataFrame, target: Target, is_staged: bool, writer: Writer, punctuations: str | None = None
) -> "DataStreamWriter":
    """Describe the query that puts ``rows`` into a store. They are results, or what units have staged.

    ``punctuations`` is the folder in which routers write punctuations down, if there are some.
    """
    register_sinks(rows.sparkSession)
    options = {
        "store": pack_store(target.store),
        "description": json.dumps(target.description.as_json()),
        "snapshots": json.dumps(target.rule.as_json()),
        "staged": str(is_staged).lower(),
        "beside_others": str(writer.is_beside_others).lower(),
        **({} if punctuations is None else {"punctuations": punctuations}),
        **({} if writer.checkpoint is None else {CHECKPOINT: writer.checkpoint}),
    }
    filled = rows if is_staged else fill_up(rows, "a row for the store")
    return filled.writeStream.format(FORMAT).outputMode("append").options(**options)


def refuse_equal_columns(names: Sequence[str]) -> None:
    """Refuse columns of one name, which no question to a store could tell apart.

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    # DuckDB, and Spark by default, find a column by its name in any case.
    folded = [name.casefold() for name in names]
    doubled = [name for name in names if folded.count(name.casefold()) > 1]
    if doubled:
        what = "columns of a store must have different names (upper and lower case do not count)"
        what += f", and these are one name: {', '.join(sorted(doubled))}"
        raise QueryError("STORE_COLUMN", f"{what}; rename it, as in .selectExpr('a.id AS a_id')")


def describe(columns: StructType, time: str | None, keys: tuple[str, ...]) -> Description:
    """Describe rows with these columns for a store.

    Parameters
    ----------
    columns : StructType
    time : str, optional
        The column of time. By default it is ``result_time``, or the first one that is marked as event time.
    keys : tuple of str

    Raises
    ------
    QueryError
        STORE_COLUMN.
    """
    names = columns.names
    refuse_equal_columns(names)
    try:
        schema = make_all_nullable(to_arrow_schema(columns, timezone="UTC"))
    except PySparkTypeError as error:
        raise QueryError("STORE_COLUMN", f"a column has a type that no store keeps: {error}") from error
    for field in schema:
        if _holds(field.type, pa.types.is_duration) or _holds(field.type, pa.types.is_interval):
            what = f"column {field.name!r} has a type that Parquet does not keep ({field.type})"
            raise QueryError("STORE_COLUMN", f"{what}; cast it, as in CAST({field.name} AS STRING)")
    if time is None:
        marked = list_marked(columns, MARK)
        time = RESULT_TIME if RESULT_TIME in names else next(iter(marked), None)
    for what, column in (("time", time), *(("key", key) for key in keys)):
        if column is not None and not _has_column(schema, column):
            known = ", ".join(schema.names)
            raise QueryError("STORE_COLUMN", f"{what} ({column!r}) must be a column of the results ({known})")
    if time is not None and not pa.types.is_timestamp(find_type(schema, time)):
        what = f"time ({time!r}) must be a column of times, and its type is {find_type(schema, time)}"
        raise QueryError("STORE_COLUMN", f"{what}; cast it to TIMESTAMP")
    for key in keys:
        kind = find_type(schema, key)
        if pa.types.is_nested(kind):
            what = f"key ({key!r}) must be a column of single values, and its type is {kind}"
            raise QueryError("STORE_COLUMN", f"{what}; name a field of it, or another column")
        if key == CHANGE_TYPE:
            what = f"key ({key!r}) must be a column of the row, because an insert and its delete have one key"
            raise QueryError("STORE_COLUMN", what)
    return Description(schema, time, keys, is_changes(columns))


def make_all_nullable(schema: pa.Schema) -> pa.Schema:
    """Declare every column and field nullable, because Spark may decide anew in each run which are."""
    return pa.schema([pa.field(field.name, _make_nullable(field.type)) for field in schema])


def _make_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _make_nullable(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_make_nullable(kind.key_type), _make_nullable(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_make_nullable(kind.value_type))
    return kind


def _holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type, or a type inside it, passes a test."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    return test(kind) or any(_holds(one, test) for one in inner)


def _has_column(schema: pa.Schema, column: str) -> bool:
    try:
        find_type(schema, column)
    except KeyError:
        return False
    return True
