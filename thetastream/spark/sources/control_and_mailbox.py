"""The control source and the mailbox as one streaming source, for units that change and send messages.

An offset has the fields of both. They are one source, so that a query has the same number of sources with and
without ``max_units``. So it may continue from its checkpoint after ``max_units`` has been added or left out.

Messages to all units go to the units of the plan that routers follow in the epoch that reads the messages.
This is the plan of the offset before, because the plan of an offset holds from the next epoch on.

A change of the plan announces the mailbox to all units of the new plan, because a unit that joins does not
know it. An offset of a query that had no mailbox before gets one. A run that begins while units leave calls
all units by an announcement, because it forgets the marks of earlier runs, and there may be no tuples that
call them. ``calls`` in the offset counts these runs.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from thetastream.core.columns import ANNOUNCEMENT
from thetastream.core.identity import Identity, decode_identity
from thetastream.runtime.control.files import list_awaited
from thetastream.spark.sources import read_source
from thetastream.spark.sources.control import ControlReader, make_control_reader, make_options
from thetastream.spark.sources.identity import SCHEMA
from thetastream.spark.sources.mailbox import MailboxReader

FORMAT = "thetastream_controlled_mailbox"
_CALLED, _TOLD = "called", "told"
"""The fields of a partition of the mailbox with the grouping keys of the units that get messages to all, and
of those that get announcements."""


class ControlledMailboxSource(DataSource):
    """Spark's data source ``thetastream_controlled_mailbox``, with the options of its two parts."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def streamReader(self, schema: Any) -> "ControlledMailboxReader":
        root, query, keys = (json.loads(self.options[name]) for name in ("root", "query", "keys"))
        mailbox = MailboxReader(root, decode_identity(query), keys)
        return ControlledMailboxReader(mailbox, make_control_reader(self.options), keys)


class ControlledMailboxReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one run of a query.

    Parameters
    ----------
    mailbox : MailboxReader
    control : ControlReader
    keys : sequence of int
        The grouping key of each slot.
    """

    def __init__(self, mailbox: MailboxReader, control: ControlReader, keys: Sequence[int]) -> None:
        self._mailbox = mailbox
        self._control = control
        self._keys = keys
        self._has_called = False

    def initialOffset(self) -> dict[str, Any]:
        return {**self._mailbox.initialOffset(), **self._control.initialOffset()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._mailbox.prepareForTriggerAvailableNow()
        self._control.prepareForTriggerAvailableNow()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._control.getDefaultReadLimit()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if "mailbox" not in start:
            start = {**self._mailbox.initialOffset(), **start}
        box = self._mailbox.latestOffset(_leave_out_control(start), limit)
        offset = self._control.latestOffset({**start, **box}, limit)
        if not self._has_called and list_awaited(offset["control"]["plan"]):
            # Another offset makes an epoch that announces the mailbox.
            offset = {**offset, "calls": offset.get("calls", 0) + 1}
        self._has_called = True
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        found = [*self._control.partitions(start, end)]
        has_messages = end["epoch"] < 0 or end["epoch"] != start["epoch"]
        if has_messages or found or end.get("calls") != start.get("calls"):
            read = end if has_messages else {**end, "units": []}
            called = self._list_keys((start if "control" in start else end)["control"]["plan"])
            told = sorted({*called, *self._list_keys(end["control"]["plan"])})
            for one in self._mailbox.partitions(*map(_leave_out_control, (start, read))):
                found.append(InputPartition({**one.value, _CALLED: called, _TOLD: told}))
        return found

    def _list_keys(self, plan: dict[str, Any]) -> list[int]:
        """List the grouping keys of the units of a plan."""
        return sorted({self._keys[slot] for one in plan["membership"] for slot in one["slots"]})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition.value, dict):
            yield from self._control.read(partition)
            return
        called, told = (set(partition.value[name]) for name in (_CALLED, _TOLD))
        for batch in self._mailbox.read(partition):
            # All rows of a batch of the mailbox are for one unit, and of one kind.
            unit, kind = (batch.column(name)[0].as_py() for name in ("unit", "kind"))
            if unit in (told if kind == ANNOUNCEMENT else called):
                yield batch

    def commit(self, end: dict[str, Any]) -> None:
        self._control.commit(end)
        self._mailbox.commit(end)


def _leave_out_control(offset: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in offset.items() if name != "control"}


def read_controlled_mailbox(
    spark: SparkSession,
    root: str,
    query: Identity,
    keys: Sequence[int],
    settings: dict[str, Any],
    plan: dict[str, Any],
    partitions: int | None,
) -> DataFrame:
    """Make the stream of messages and notices of a controlled join whose units send messages.

    Parameters
    ----------
    spark : SparkSession
    root : str
        The folder of mailboxes.
    query : Identity
    keys : sequence of int
        The grouping key of each slot.
    settings, plan, partitions
        The control of the join, as in ``read_control``.
    """
    options = {"root": root, "keys": list(keys), **make_options(query, settings, plan, partitions)}
    return read_source(spark, ControlledMailboxSource, options)


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
