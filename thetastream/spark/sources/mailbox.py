"""The mailbox as a streaming source: the messages that units send in epoch e are input of epoch e + 1.

An offset names the mailbox, the last epoch whose messages have been read, and the units that sent them. Spark
writes the offset to the checkpoint before it runs the epoch that reads these messages, so an epoch that runs
again reads the same files. Files are removed when Spark reports that their epoch is committed. Therefore
Spark's own log makes sure that each message is read exactly once. The first offset already contains the name
of the mailbox, so every run of a checkpoint finds the mailbox, no matter which DataFrame the run starts from.

A file that is lost before the source lists it is in no offset. Therefore the source announces to all units
which files it has found, and a unit that sent messages refuses to go on if its own file is not among them
(``thetastream.runtime.mailbox.announcement``). If a user puts the file back, an epoch that runs again finds
it, because the tasks of an epoch list the files themselves.

Spark runs the source in separate Python processes and starts a new one for the driver's part. The modules are
pickled by value, so that these processes do not load this package, which would take seconds.
"""

import json
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from thetastream.core import addresses, folder, private_folder
from thetastream.core.addresses import hide_secrets
from thetastream.core.blocks import STEP
from thetastream.core.columns import ANNOUNCEMENT, EMPTY
from thetastream.core.identity import Identity, decode_identity, encode_identity
from thetastream.runtime.mailbox import files
from thetastream.runtime.mailbox.files import ADDRESS, ADDRESSED, Mailbox, Row, rows
from thetastream.spark.sources import read_source
from thetastream.spark.sources.identity import SCHEMA, WRITER, continue_query, refuse_scaled, write_identity

FORMAT = "thetastream_mailbox"
BYTES_PER_TASK = 1 << 25
"""Maximum number of message bytes that one Spark task reads; the messages of one unit are never split."""


def address(filed: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Make one row per destination, as the exchange carries them, from rows that ``rows`` made.

    Each batch has one row, because all copies of a block together may exceed what an Arrow array can hold.
    """
    for number, to in enumerate(filed.column("to").to_pylist()):
        sent = [column.slice(number, 1) for column in filed.columns[:-1]]
        for each in to:
            unit, kind = (pa.array([each[name]], kind) for name, kind in ADDRESS)
            yield pa.RecordBatch.from_arrays([unit, kind, *sent], schema=ADDRESSED)
            n = sent[3].nbytes // STEP
            if n:
                empty = [each["unit"], EMPTY, 0, 0, None, b""]
                columns = [
                    pa.array([value] * n, field.type) for value, field in zip(empty, ADDRESSED, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=ADDRESSED)


class MailboxSource(DataSource):
    """Spark's data source ``thetastream_mailbox``, which has the options ``root``, ``query`` and ``keys``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: Any) -> "MailboxReader":
        root, query, keys = (json.loads(self.options[name]) for name in ("root", "query", "keys"))
        return MailboxReader(root, decode_identity(query), keys)


class MailboxReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query.

    An offset is ``{"mailbox": name, "root": folder, "epoch": e, "units": [...], "query": identity,
    "writer": WRITER}``. The root is kept for people and for tools; a run always uses its own.
    """

    def __init__(self, root: str, query: Identity, keys: Sequence[int]) -> None:
        self._root = root
        self._query = query
        self._keys = keys
        self._new: str | None = None
        self._has_begun = False

    def _open(self, offset: dict[str, Any]) -> Mailbox:
        return Mailbox(self._root, offset["mailbox"])

    def initialOffset(self) -> dict[str, Any]:
        self._new = self._new or uuid.uuid4().hex
        return {
            "mailbox": self._new,
            "root": hide_secrets(self._root),
            "epoch": -1,
            "units": [],
            "query": write_identity(self._query),
            "writer": WRITER,
        }

    def prepareForTriggerAvailableNow(self) -> None:
        # The input that is available now causes a limited number of messages; the run ends when all are read.
        pass

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        refuse_scaled(start)
        start = {**continue_query(start, self._query), "root": hide_secrets(self._root)}
        if start["mailbox"] == self._new and not self._has_begun:
            return start
        box = self._open(start)
        box.check(self._query)
        epoch, units = box.find_next(start["epoch"])
        return {**start, "epoch": epoch, "units": units} if units else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        refuse_scaled(end)
        continue_query(end, self._query)
        box = self._open(end)
        if end["epoch"] < 0:
            box.create(self._query)
        box.check(self._query)
        self._has_begun = True
        # If only the place of the mailbox or the text of the query differs between the offsets, the messages
        # were read before, and are not read again. The offset of a run without a mailbox has no epoch.
        sizes: dict[int, int] = {}
        senders: list[int] = []
        if end["units"] and end["epoch"] > start.get("epoch", -1):
            sizes = box.list_sizes(end["epoch"])
            senders = sorted({*sizes, *end["units"]})
        tasks: list[list[int]] = [[]]
        nbytes = 0
        for unit in senders:
            # A file of an offset that is gone has no size. The task that reads it raises an error.
            size = sizes.get(unit, 0)
            if tasks[-1] and nbytes + size > BYTES_PER_TASK:
                tasks.append([])
                nbytes = 0
            tasks[-1].append(unit)
            nbytes += size
        found = [{**end, "units": units, "senders": None} for units in tasks]
        found[0]["senders"] = senders
        return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        offset = partition.value
        box = self._open(offset)
        if offset["senders"] is not None:
            everyone = [(key, ANNOUNCEMENT) for key in self._keys]
            found = json.dumps([box.name, offset["epoch"], offset["senders"]])
            yield from address(rows([Row(0, 0, found, b"", everyone)]))
        for unit in offset["units"]:
            for batch in box.fetch(offset["epoch"], unit):
                yield from address(batch)

    def commit(self, end: dict[str, Any]) -> None:
        with suppress(OSError):
            self._open(end).clear(end["epoch"])


def read_mailbox(spark: SparkSession, root: str, query: Identity, keys: Sequence[int]) -> DataFrame:
    """Read the messages of the mailbox under ``root`` that belongs to ``query``, as a stream.

    ``keys`` are the grouping keys of the units.
    """
    options = {"root": root, "query": encode_identity(query), "keys": list(keys)}
    return read_source(spark, MailboxSource, options)


for module in (addresses, private_folder, folder, files, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
