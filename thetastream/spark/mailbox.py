"""The mailbox as a streaming source: what units sent in epoch e is input of epoch e + 1.

An offset names the mailbox, the last epoch whose messages have been read, and the units that sent some. Spark
writes it to the checkpoint before it runs the epoch that reads them, so an epoch that is run again reads the
same files, and files are removed when Spark says that their epoch is committed: exactly once, by Spark's own
log. The mailbox's name begins in the first offset, so every run of a checkpoint finds it, whatever DataFrame
it was started from.

Spark runs the source in Python processes of its own, a new one for the driver's side. The modules are pickled
by value, so these do not load this package, which would take seconds.
"""

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thetastream import mailbox
from thetastream.mailbox import Mailbox

FORMAT = "thetastream_mailbox"
HELLO = 0
"""Kind of the message that tells a unit the mailbox's name, as its block."""
SCHEMA = "side byte, kind byte, origin long, block binary, to int, path string"
"""``to`` is the grouping key of the unit that a message goes to; NULL: all. ``path``, of partial results, are
the numbers of the streams in the order in which they are taken in; NULL: new tuples."""
BYTES_PER_PAGE = 1 << 26
BYTES_PER_TASK = 1 << 25
"""Messages that one task reads, if they come from several units."""
_ARROW = pa.schema(
    [
        ("side", pa.int8()),
        ("kind", pa.int8()),
        ("origin", pa.int64()),
        ("block", pa.binary()),
        ("to", pa.int32()),
        ("path", pa.string()),
    ]
)


def messages(
    rows: Sequence[tuple[int, int, int, bytes]],
    to: Sequence[int | None] | None = None,
    paths: Sequence[str | None] | None = None,
) -> pa.RecordBatch:
    """Messages, (side, kind, origin, block) each, as the source hands them out; ``to`` all units or these."""
    none = [None] * len(rows)
    columns = (*zip(*rows, strict=True), to or none, paths or none)
    return pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, _ARROW, strict=True)],
        schema=_ARROW,
    )


def pages(
    rows: Sequence[tuple[int, int, int, bytes]],
    to: Sequence[int | None],
    paths: Sequence[str | None] | None = None,
) -> list[pa.RecordBatch]:
    """Messages in as many batches as their blocks need: an Arrow array holds 2 GiB."""
    found, start, nbytes = [], 0, 0
    for n, (*_, block) in enumerate(rows):
        if n > start and nbytes + len(block) > BYTES_PER_PAGE:
            found.append(messages(rows[start:n], to[start:n], paths and paths[start:n]))
            start, nbytes = n, 0
        nbytes += len(block)
    if start < len(rows):
        found.append(messages(rows[start:], to[start:], paths and paths[start:]))
    return found


class MailboxSource(DataSource):
    """``spark.readStream.format("thetastream_mailbox")`` with the options ``root`` and ``query``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "MailboxReader":
        return MailboxReader(self.options["root"], json.loads(self.options["query"]))


class MailboxReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One run's reader; offsets are ``{"mailbox": name, "epoch": e, "units": [...]}``."""

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
        # Messages follow from the input there is now: the run ends when they are used up.
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
            yield messages([(0, HELLO, 0, box.name.encode())])
        for unit in offset["units"]:
            yield from box.fetch(offset["epoch"], unit)

    def commit(self, end: dict[str, Any]) -> None:
        with suppress(OSError):
            self._open(end).clear(end["epoch"])


def read_mailbox(spark: SparkSession, root: str, query: Mapping[str, str]) -> DataFrame:
    """The messages of a mailbox under ``root`` that belongs to ``query``, as a stream."""
    spark.dataSource.register(MailboxSource)
    return (
        spark.readStream.format(FORMAT).option("root", root).option("query", json.dumps(dict(query))).load()
    )


for module in (mailbox, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
