"""The source of control rows of one stream: a row has an event time up to which the stream is complete.

    rows of the stream UNION control rows -> withWatermark -> rows of the stream

An offset is ``{"time_us": t, "run": name}``. Spark writes it to the checkpoint before it runs the epoch that
reads the row, so an epoch that runs again reads the same row. The time only rises. The source knows nothing
of earlier runs: a stream is idle again only after it has been silent for the whole time in this run. Several
queries may read the same stream. The process in which Spark asks for offsets does not know its query, but a
Spark task does. Therefore the first epoch of a run has a task that writes down the query of the run. A run
with ``trigger(availableNow=True)`` ends when it has read all that is available, so no stream is idle in it.
"""

import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thetastream.core import addresses, private_folder
from thetastream.core import folder as folders
from thetastream.core.folder import Folder
from thetastream.lowering.domains import quote
from thetastream.runtime import idle_rule as rules
from thetastream.runtime.idle_rule import IdleRule, Report, StreamReport
from thetastream.spark.event_time import cast_event_time
from thetastream.spark.sources import register_source

FORMAT = "thetastream_idle"
TIME = "time"
_SCHEMA = pa.schema([(TIME, pa.timestamp("us", "UTC"))])
LOOK_S = 0.1
"""Reports are read at most this often, in seconds. An epoch takes longer, so no report is missed."""
FEWEST_ADVANCE_S, ADVANCES = 1.0, 60
"""The time moves at most ``ADVANCES`` times in the span of ``idle``, and at most once in this many seconds,
because each step may cost two epochs."""

_QUERY = "sql.streaming.queryId"
_RUN = "run-"
MARK = "thetastream.idle"
"""The metadata key of the event time of a stream with ``idle=``: the folder and the name of its reports."""
REPORTS = "idle-"
"""Beginning of the names of folders with reports."""
CONTROL = "__is_control"
"""The column that says whether a row is a control row."""


def read_report(text: bytes) -> Report:
    """Read what ``IdleReports.write`` wrote."""
    found = json.loads(text)
    return Report(found["watermark_us"], tuple(StreamReport(*one) for one in found["brought"]))


class IdleSource(DataSource):
    """Spark's data source ``thetastream_idle``: options ``folder``, ``stream``, ``idle_s``, ``delay_us``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{TIME} timestamp"

    def streamReader(self, schema: Any) -> "IdleReader":
        folder = Folder(self.options["folder"], self.options["stream"])
        return IdleReader(folder, float(self.options["idle_s"]), int(self.options["delay_us"]))


class IdleReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query."""

    def __init__(self, folder: Folder, idle_s: float, delay_us: int) -> None:
        self._folder = folder
        self._rule = IdleRule(idle_s)
        self._delay_us = delay_us
        self._advance_s = max(FEWEST_ADVANCE_S, idle_s / ADVANCES)
        self._seen = folder.list_files()
        """The reports that were read, with their times and sizes. Those of earlier runs are not read."""
        self._run = uuid.uuid4().hex
        self._query: str | None = None
        self._looked_s = self._advanced_s = float("-inf")
        self._reads_what_is_there = False

    def initialOffset(self) -> dict[str, Any]:
        return {"time_us": 0, "run": ""}

    def prepareForTriggerAvailableNow(self) -> None:
        self._reads_what_is_there = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        now_s = time.monotonic()
        if self._reads_what_is_there or now_s - self._looked_s < LOOK_S:
            return start
        self._looked_s = now_s
        if start["run"] != self._run:
            return {**start, "run": self._run}
        self._rule.hear(self._look(), now_s)
        complete_us = self._rule.find_complete_us(now_s)
        if complete_us is None or now_s - self._advanced_s < self._advance_s:
            return start
        time_us = complete_us + self._delay_us
        if time_us <= start["time_us"]:
            return start
        self._advanced_s = now_s
        return {**start, "time_us": time_us}

    def _look(self) -> Iterator[Report]:
        """Read the reports of this query that are new."""
        found = self._folder.list_files()
        if self._query is None and f"{_RUN}{self._run}" in found:
            self._query = self._folder.read(f"{_RUN}{self._run}").decode()
        if self._query is None:
            return
        for name, version in found.items():
            if name.startswith(self._query) and self._seen.get(name) != version:
                yield read_report(self._folder.read(name))
        self._seen = found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        time_us = end["time_us"] if end["time_us"] > start["time_us"] else None
        return [InputPartition((end["run"], time_us))] if end != start else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        run, time_us = partition.value
        if time_us is None:
            context = TaskContext.get()
            query = None if context is None else context.getLocalProperty(_QUERY)
            self._folder.make(is_private=True)
            self._folder.write(f"{_RUN}{run}", (query or "").encode())
            return
        yield pa.RecordBatch.from_arrays([pa.array([time_us], _SCHEMA.field(0).type)], schema=_SCHEMA)

    def commit(self, end: dict[str, Any]) -> None:
        pass


def read_idle_times(spark: SparkSession, folder: str, stream: str, idle_s: float, delay_us: int) -> DataFrame:
    """Read the control rows of a stream: one column ``time``."""
    register_source(spark, IdleSource)
    options = {"folder": folder, "stream": stream, "idle_s": str(idle_s), "delay_us": str(delay_us)}
    return spark.readStream.format(FORMAT).options(**options).load()


def follow_others(
    df: DataFrame, event_time: str, delay: str, delay_us: int, idle_s: float, folder: str
) -> DataFrame:
    """Mark the event time of a stream that may be idle. ``delay`` and ``delay_us`` are the same span."""
    df = cast_event_time(df, event_time)
    name = f"{REPORTS}{uuid.uuid4().hex}"
    times = read_idle_times(df.sparkSession, folder, name, idle_s, delay_us)
    control = [
        F.col(TIME).alias(field.name)
        if field.name == event_time
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in df.schema
    ]
    both = df.withColumn(CONTROL, F.lit(False)).union(times.select(*control, F.lit(True)))
    time = F.col(quote(event_time))
    marked = {**(df.schema[event_time].metadata or {}), MARK: [folder, name]}
    columns = [
        time.alias(field.name, metadata=marked) if field.name == event_time else F.col(quote(field.name))
        for field in df.schema
    ]
    watched = both.select(*columns, CONTROL).withWatermark(event_time, delay)
    # Spark moves a deterministic filter before the watermark, which would then see no control row. It moves
    # no filter past one that it takes for non-deterministic, so filters of the user stay behind it as well.
    rows = watched.where(~(F.col(CONTROL) & (F.spark_partition_id() >= 0)))
    return rows.drop(CONTROL)


for module in (addresses, private_folder, folders, rules, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
