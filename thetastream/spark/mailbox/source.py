"""The mailbox as a streaming source: the messages that units send in epoch e are input of epoch e + 1.

An offset names the mailbox, the last epoch whose messages have been read, and the units that sent them. Spark
writes the offset to the checkpoint before it runs the epoch that reads these messages, so an epoch that runs
again reads the same files. Files are removed when Spark reports that their epoch is committed. Spark's own
log therefore makes the messages exactly once. The first offset already contains the name of the mailbox, so
every run of a checkpoint finds the mailbox, no matter which DataFrame the run starts from.

Spark runs the source in separate Python processes and starts a new one for the driver's part. The modules are
pickled by value, so that these processes do not load this package, which would take seconds.
"""

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thetastream.spark.mailbox import files
from thetastream.spark.mailbox.files import Mailbox

FORMAT = "thetastream_mailbox"
BYTES_PER_TASK = 1 << 25
"""Maximum number of message bytes that one Spark task reads; the messages of one unit are never split."""
SCHEMA = "stream byte, origin long, header string, block binary, to array<struct<unit: int, kind: byte>>"
"""The schema of rows before the exchange; ``thetastream.core.columns`` explains the columns."""
_ARROW = pa.schema(
    [
        ("stream", pa.int8()),
        ("origin", pa.int64()),
        ("header", pa.string()),
        ("block", pa.binary()),
        ("to", pa.list_(pa.struct([("unit", pa.int32()), ("kind", pa.int8())]))),
    ]
)


class Row(NamedTuple):
    """One row before the exchange."""

    stream: int
    origin: int
    header: str | None
    block: bytes
    to: Sequence[tuple[int, int]] | None
    """(unit, kind) of every destination; None sends the row to all units as an announcement."""


def rows(found: Sequence[Row]) -> pa.RecordBatch:
    """Make an Arrow batch of rows, with the columns of ``SCHEMA``."""
    columns: list[Any] = [list(column) for column in zip(*found, strict=True)]
    columns[4] = [
        None if to is None else [{"unit": unit, "kind": kind} for unit, kind in to] for to in columns[4]
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)],
        schema=_ARROW,
    )


class MailboxSource(DataSource):
    """Spark's data source ``thetastream_mailbox``, which has the options ``root`` and ``query``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "MailboxReader":
        return MailboxReader(self.options["root"], json.loads(self.options["query"]))


class MailboxReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query; an offset is ``{"mailbox": name, "epoch": e, "units": [...]}``."""

    def __init__(self, root: str, query: Mapping[str, str]) -> None:
        self._root = root
        self._query = query
        self._new: str | None = None
        self._has_begun = False

    def _open(self, offset: dict[str, Any]) -> Mailbox:
        return Mailbox(self._root, offset["mailbox"])

    def initialOffset(self) -> dict[str, Any]:
        self._new = self._new or uuid.uuid4().hex
        return {"mailbox": self._new, "epoch": -1, "units": []}

    def prepareForTriggerAvailableNow(self) -> None:
        # The input that is available now causes a limited number of messages; the run ends when all are read.
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if start["mailbox"] == self._new and not self._has_begun:
            return start
        box = self._open(start)
        box.check(self._query)
        epoch, units = box.newest()
        return {**start, "epoch": epoch, "units": units} if epoch > start["epoch"] else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        box = self._open(end)
        if end["epoch"] < 0:
            box.create(self._query)
        box.check(self._query)
        self._has_begun = True
        tasks: list[list[int]] = [[]]
        nbytes = 0
        for unit in end["units"]:
            size = box.size(end["epoch"], unit)
            if tasks[-1] and nbytes + size > BYTES_PER_TASK:
                tasks.append([])
                nbytes = 0
            tasks[-1].append(unit)
            nbytes += size
        return [InputPartition({**end, "units": units, "is_first": n == 0}) for n, units in enumerate(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        offset = partition.value
        box = self._open(offset)
        if offset["is_first"]:
            yield rows([Row(0, 0, None, box.name.encode(), None)])
        for unit in offset["units"]:
            yield from box.fetch(offset["epoch"], unit)

    def commit(self, end: dict[str, Any]) -> None:
        with suppress(OSError):
            self._open(end).clear(end["epoch"])


def read_mailbox(spark: SparkSession, root: str, query: Mapping[str, str]) -> DataFrame:
    """Read the messages of the mailbox under ``root`` that belongs to ``query``, as a stream."""
    spark.dataSource.register(MailboxSource)
    return (
        spark.readStream.format(FORMAT).option("root", root).option("query", json.dumps(dict(query))).load()
    )


for module in (files, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
