"""Every column that a block or a row of the exchange may have, and what it means.

A *block* is an Arrow record batch of tuples. Its columns are

    c0, c1, ...      payload: the columns that results show, as ``thetastream.lowering.payload`` carries them
    k0, k1, ...      keys that Catalyst computed and that are not payload
    h                hash of the whole tuple; routers spread tuples by it and drop it before the exchange
    p                not NULL if the tuple passes the filters of its stream; only for units that number all
                     tuples before they filter them
    n                number of the tuple in its stream, in the order of arrival
    m                number of tuples of the other stream that arrived before it
    m0, m1, ...      number of tuples of each stream that arrived before it, or before the origin of a partial
                     result of three or more streams
    o                place of the tuple in the arrivals of both streams
    i                number that a unit gives to a tuple of a preserved stream (outer, semi, anti joins)
    q, gone          order of an upsert or a version among those of its key, and whether its key has no row
    w                sign of the tuple: 1 if it was inserted, -1 if it was deleted; only for changes
    r                part of the value by which partners are ranked that the stream of the tuple determines
    sender           number of the unit that sends a candidate pair or a decided tuple to a second unit
    decided          side of a decided tuple on this way; NULL for a pair
    left_number, right_number
                     number of the preserved tuple in such a row; NULL if the tuple can have no partner
    left_sign, right_sign
                     sign of the tuple of each stream in such a row; only for changes
    key              key by which such a pair, or a pair of nearest partners, is ranked
    born             place of a stored tuple in the global order; in a partial result, the place of its origin
    earliest, latest interval of event times in which the partners of a partial result lie
    number           number of a right tuple among all right tuples, on the handshake chain
    first, end       interval of these numbers that a left tuple still has to meet, on the handshake chain
    partition        where a tuple is looked up, if a table is larger than the cache of a host

A block travels as one binary value of a *row of the exchange*.

``project`` computes the columns that a user selected from the blocks that a unit emits, with Arrow alone:

    block columns c0, c1, ...  ->  a.id, struct a, result_time

A block holds a TIMESTAMP as a number of microseconds since 1970, so a cast restores it. Only columns that a
cast restores can be computed here.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

HASH = "h"
PASSES = "p"
SEQUENCE = "n"
SEEN = "m"
ARRIVAL = "o"
TUPLE = "i"
RANKED = "r"
SIGN = "w"
UPSERT_KEY = "k0"
VERSION_ORDER, VERSION_GONE = "q", "gone"
SENDER = "sender"
DECIDED = "decided"
NUMBERS = "left_number", "right_number"
SIGNS = "left_sign", "right_sign"
KEY = "key"
BORN, OLDEST = "born", "oldest"
EARLIEST, LATEST = "earliest", "latest"
PRESENT = "present", "present_too"
"""Columns behind the results of an outer join: whether a row has a tuple of the first padded stream, and of
the second."""
NUMBER = "number"
FIRST, END = "first", "end"
PARTITION = "partition"

PUNCTUATION = "punctuation"
"""Column of the batches that routers read, if rows of the stream may be punctuations. It is NULL for a tuple.
For a punctuation, it is its event time in microseconds, or the least number if it has none."""

UNIT = "unit"
"""Column of a row of the exchange: the grouping key of the unit that gets the row."""
KIND = "kind"
"""Column of a row of the exchange: the kind of the row; the values are below."""
STREAM = "stream"
"""Column of a row of the exchange: the number of the stream that the tuples belong to."""
ORIGIN = "origin"
"""Column of a row of the exchange: the place of the block among the blocks of its sender. Units read blocks
in this order."""
HEADER = "header"
"""Column of a row of the exchange: the header of a message, as JSON. For new tuples, the version of the
control plan by which they were routed; NULL before its first change."""
BLOCK = "block"
"""Column of a row of the exchange: the packed block. It is empty if the row only announces an epoch."""
# Kinds 0, 1, 2 and 6 are new tuples; the kind is the number of their role (``thetastream.core.sides.Role``).
MESSAGE = 3
"""The kind of a message that a unit sent in the previous epoch."""
ANNOUNCEMENT = 4
"""The kind of a row that announces an epoch. Its block holds the name of the query's mailbox, or nothing."""
NOTICE = 7
"""The kind of a row that tells a unit of a change of the control plan
(``thetastream.runtime.control.notices``).
"""
EMPTY = 5
"""The kind of a row without a block, which follows a large block
(``thetastream.spark.dataflow.wide_rows``).
"""
SHED = 8
"""The kind of a row that reports to the first unit what a router dropped. Its header is a JSON list with the
values of a ``ShedReport``."""

LATEST_TIME = 9
"""The kind of a row that reports the latest event time that a router found. Its header is the time, in
microseconds since 1970 (``thetastream.engine.clock``)."""
FORK = 10
"""The kind of a row that tells a unit from which query it has its stored tuples. Its header is the identity
of that query, as JSON (``thetastream.spark.fork``)."""
MEASURE = 11
"""The kind of a row that asks a unit to report its load, because a policy is followed. It has no header
(``thetastream.runtime.control.following``)."""
PLAN = 12
"""The kind of a row that tells a unit which version of the control plan holds from the next epoch on. Its
header is the version (``thetastream.runtime.control.held_plan``)."""
RUNNING_TASKS = 13
"""The kind of a row that tells a unit which join tasks run from the next epoch on. Its header is a JSON list
of them (``thetastream.engine.running_tasks``)."""
HIDDEN = "thetastream.hidden"
"""The metadata key of a column of an input that conditions read and results do not have."""
CHANGE_TYPE = "_change_type"
"""The column of changes and of their results that says what happened to the row: ``INSERT`` or ``DELETE``."""
INSERT, DELETE = "insert", "delete"
CHANGES = "thetastream.changes"
"""The metadata key of the column ``CHANGE_TYPE``, and of all other columns of a stream of changes."""
VERSION = "_version"
"""The column of a stream of versions with their order and whether their key has no row any more."""
VERSIONS = "thetastream.versions"
"""The metadata key of the column ``VERSION``, and of all other columns of a stream of versions."""
MARK = "spark.watermarkDelayMs"
"""The metadata key by which Spark marks the column that ``withWatermark`` names, with the delay."""


def name_payload(number: int) -> str:
    """Name the block column of the payload column with this number.

    >>> name_payload(3)
    'c3'
    """
    return f"c{number}"


def name_seen_column(stream: int) -> str:
    """Name the column with the number of tuples of a stream that arrived before a tuple.

    >>> name_seen_column(2)
    'm2'
    """
    return f"{SEEN}{stream}"


class ColumnSource(ABC):
    """How one selected column follows from a block."""

    @abstractmethod
    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        """Compute the column as an array of this type."""

    @property
    @abstractmethod
    def read(self) -> tuple[str, ...]:
        """The block columns that the column follows from."""


@dataclass(frozen=True)
class BlockColumn(ColumnSource):
    """A column of a stream."""

    name: str

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        array = block.column(self.name)
        return array if array.type == kind else array.cast(kind)

    @property
    def read(self) -> tuple[str, ...]:
        return (self.name,)


@dataclass(frozen=True)
class TupleColumn(ColumnSource):
    """All columns of a stream, as one struct."""

    fields: tuple[BlockColumn, ...]

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        arrays = [field.compute(block, kind.field(n).type) for n, field in enumerate(self.fields)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind))

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


@dataclass(frozen=True)
class LatestTime(ColumnSource):
    """The latest of several event times of one type; NULL if one of them is NULL."""

    times: tuple[BlockColumn, ...]

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        # Arrow compares no instants with a time zone in this way, but their microseconds.
        arrays = [time.compute(block, pa.int64()) for time in self.times]
        return pc.max_element_wise(*arrays, skip_nulls=False).cast(kind)

    @property
    def read(self) -> tuple[str, ...]:
        return tuple(time.name for time in self.times)


@dataclass(frozen=True)
class ChangeType(ColumnSource):
    """What happened to a row: ``INSERT`` or ``DELETE``, by its sign."""

    def compute(self, block: pa.RecordBatch, kind: pa.DataType) -> pa.Array:
        return pc.if_else(pc.greater(block.column(SIGN), 0), INSERT, DELETE).cast(kind)

    @property
    def read(self) -> tuple[str, ...]:
        return (SIGN,)


def project(block: pa.RecordBatch, sources: Sequence[ColumnSource], schema: pa.Schema) -> pa.RecordBatch:
    """Compute the selected columns of a block.

    Examples
    --------
    >>> block = pa.RecordBatch.from_pydict({"c0": [7], "c1": [5], "c2": [6]})
    >>> schema = pa.schema([("id", pa.int64()), ("result_time", pa.timestamp("us"))])
    >>> sources = BlockColumn("c0"), LatestTime((BlockColumn("c1"), BlockColumn("c2")))
    >>> project(block, sources, schema).to_pydict()
    {'id': [7], 'result_time': [datetime.datetime(1970, 1, 1, 0, 0, 0, 6)]}
    """
    arrays = [source.compute(block, field.type) for source, field in zip(sources, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
