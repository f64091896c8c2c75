"""``th.CassandraStore``: results in tables of Apache Cassandra, found by the values of their keys.

pairs           chunks of rows; those of one attempt of a task are one partition
pairs_keys      an index: which chunks have a value of a key column; each value is a partition
pairs_commits   the log of commits, ``LOG_ROWS`` versions in a partition

The log of a store in Apache Cassandra: a lightweight transaction writes each version once.

Chunks of rows in Apache Cassandra, and the index of their keys.

    chunks   ((name), number)                          -> the bytes of a chunk
    keys     ((column, bucket), value, name, number)   -> nothing: the chunk has a row with this value

A bucket is a hash of the value, and a partition of the index has all values of one bucket. The entries of one
partition are sent in one batch, which Cassandra applies as one write. One statement for each entry would take
many times as long.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, ClassVar
from zlib import crc32

from thetastream.core.errors import QueryError
from thetastream.results.chunks import Chunk, ChunkStore, ChunkTable, Place
from thetastream.results.description import Description
from thetastream.results.log import Log
from thetastream.stores.cassandra_session import CassandraTables

LONGEST_NAME = 48 - len("_commits")
"""The largest number of characters of the name of a store's table. Cassandra allows 48 characters."""
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)


NOTE = -1
"""The version of the note of the log. It has a partition of its own."""


class CassandraLog(Log):
    """Versions as rows of a table."""

    def __init__(self, tables: CassandraTables, name: str) -> None:
        super().__init__(name)
        self._tables, self._table = tables, tables.quote("commits")

    def make(self) -> None:
        """Make the table unless it is there."""
        self._tables.make("part int, version int, entry text, PRIMARY KEY (part, version)", "commits")

    def find_last(self) -> int:
        text = f"SELECT version FROM {self._table} WHERE part = ? ORDER BY version DESC LIMIT 1"
        part, newest = 0, -1
        while newest == part * LOG_ROWS - 1:
            found = self._tables.find(text, (part,))
            newest, part = newest if found is None else found[0], part + 1
        return newest

    def find_text(self, version: int) -> str | None:
        text = f"SELECT entry FROM {self._table} WHERE part = ? AND version = ?"
        found = self._tables.find(text, (version // LOG_ROWS, version))
        return None if found is None else found[0]

    def list_texts(self, after: int, noted: int) -> Iterator[tuple[int, object]]:
        text = f"SELECT version, entry FROM {self._table} WHERE part = ? AND version > ?"
        part = (after + 1) // LOG_ROWS
        # If the last entry of a partition is gone, the note tells that there are more partitions.
        while after >= part * LOG_ROWS - 1 or part <= noted // LOG_ROWS:
            for newer, entry in self._tables.run(text, (part, after)):
                after = newer
                yield newer, entry
            part += 1

    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        from cassandra import OperationTimedOut, WriteTimeout

        insert = f"INSERT INTO {self._table} (part, version, entry) VALUES (?, ?, ?) IF NOT EXISTS"
        try:
            return bool(self._tables.run(insert, (version // LOG_ROWS, version, text)).was_applied)
        except (OperationTimedOut, WriteTimeout):
            # The row may have been written although the answer is lost. A serial read completes writes that
            # are under way, so it finds the row in this case.
            return self.find_text(version) == text

    def find_note(self) -> object:
        return self.find_text(NOTE)

    def write_note(self, text: str) -> None:
        insert = f"INSERT INTO {self._table} (part, version, entry) VALUES (?, ?, ?)"
        self._tables.run(insert, (NOTE // LOG_ROWS, NOTE, text))


class CassandraTable(ChunkTable):
    """The tables of chunks and keys. The index finds single values of a key and no ranges."""

    def __init__(self, tables: CassandraTables) -> None:
        self._tables = tables
        self._chunks, self._keys = tables.quote(), tables.quote("keys")

    def make(self) -> None:
        self._tables.make("name text, number int, data blob, PRIMARY KEY (name, number)")
        columns = "column int, bucket int, value blob, name text, number int"
        self._tables.make(f"{columns}, PRIMARY KEY ((column, bucket), value, name, number)", "keys")

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        text = f"INSERT INTO {self._chunks} (name, number, data) VALUES (?, ?, ?)"
        for _ in self._tables.run_each(text, [(name, one.number, one.data) for one in chunks]):
            pass
        text = f"INSERT INTO {self._keys} (column, bucket, value, name, number) VALUES (?, ?, ?, ?, ?)"
        self._tables.run_batches(text, batch_entries(name, chunks))

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        text = f"SELECT data FROM {self._chunks} WHERE name = ?"
        return self._select(text, [(name,) for name in names])

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        return self._select(f"SELECT data FROM {self._chunks} WHERE name = ? AND number = ?", places)

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        if low is None or low != high:
            return None
        text = f"SELECT name, number FROM {self._keys} WHERE column = ? AND bucket = ? AND value = ?"
        rows = self._tables.run(text, (column, find_bucket(low), low))
        found = [(name, number) for name, number in islice(rows, limit + 1)]
        return found if len(found) <= limit else None

    def list_names(self) -> Iterator[str]:
        return (name for (name,) in self._tables.run(f"SELECT DISTINCT name FROM {self._chunks}"))

    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        wheres = "column = ? AND bucket = ? AND value = ? AND name = ? AND number = ?"
        self._tables.run_batches(f"DELETE FROM {self._keys} WHERE {wheres}", batch_entries(name, chunks))
        self._tables.run(f"DELETE FROM {self._chunks} WHERE name = ?", (name,))

    def _select(self, text: str, values: Sequence[Sequence[Any]]) -> Iterator[bytes]:
        return (data for rows in self._tables.run_each(text, values) for (data,) in rows)


@dataclass(frozen=True)
class CassandraStore(ChunkStore):
    """Results in tables of Apache Cassandra. It needs the package cassandra-driver.

    Rows are kept in chunks, as Arrow wrote them, so columns may have any type. A question by the value of a
    key reads only the chunks that have this value. A question by a range reads all chunks of the tasks whose
    bounds overlap the range.

    Parameters
    ----------
    url : str
        The address at which the driver and all workers connect, as in
        ``"cassandra://user:password@host1,host2:9042/results"``. Its path is a keyspace, which must exist.
        The address is a part of the options of the query.
    table : str
        The name of the table. The store makes this table, and two more whose names begin with it.

    Examples
    --------
    >>> import thetastream as th
    >>> store = th.CassandraStore("cassandra://host/results", "pairs")
    >>> query = th.write(pairs, store, checkpoint="out/checkpoint")  # doctest: +SKIP
    """

    url: str
    table: str

    kind: ClassVar[str] = "cassandra"
    schemes: ClassVar[tuple[str, ...]] = ("cassandra",)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.table) or len(self.table) > LONGEST_NAME:
            what = f"table must be a letter and up to {LONGEST_NAME - 1} more letters, digits, underscores"
            raise QueryError("BAD_VALUE", f"{what}, not {self.table!r}")
        CassandraTables.read(self.url, self.table)

    def __repr__(self) -> str:
        """Describe the store without its address, which may hold a password."""
        return f"CassandraStore(..., {self.table!r})"

    @property
    def name(self) -> str:
        return f"table {self.table!r}"

    def describe(self, description: Description) -> None:
        self.log.make()
        super().describe(description)

    @property
    def log(self) -> CassandraLog:
        return CassandraLog(CassandraTables.read(self.url, self.table), self.name)

    @property
    def chunks(self) -> CassandraTable:
        return CassandraTable(CassandraTables.read(self.url, self.table))


LOG_ROWS = 100_000
"""The number of versions in a partition, which then has about 50 MB."""

BUCKETS = 256
"""The number of partitions of the index for each key column. Existing stores depend on it."""
BATCH_ENTRIES = 500
"""The largest number of entries of the index in one batch."""
Entry = tuple[int, int, bytes, str, int]
"""An entry of the index: column, bucket, value, name and number."""


def find_bucket(value: bytes) -> int:
    """Find the bucket of a value, which is the same in every process.

    >>> find_bucket(b"x")
    131
    """
    return crc32(value) % BUCKETS


def batch_entries(name: str, chunks: Sequence[Chunk]) -> Iterator[list[Entry]]:
    """Yield the entries of the index for these chunks, in batches of one partition each.

    >>> list(batch_entries("part", [Chunk(0, b"", ((0, b"x"), (1, b"x"))), Chunk(1, b"", ((0, b"x"),))]))
    [[(0, 131, b'x', 'part', 0), (0, 131, b'x', 'part', 1)], [(1, 131, b'x', 'part', 0)]]
    """
    entries = sorted(
        (column, find_bucket(value), value, name, one.number) for one in chunks for column, value in one.keys
    )
    for _, of_partition in groupby(entries, key=lambda entry: entry[:2]):
        while batch := list(islice(of_partition, BATCH_ENTRIES)):
            yield batch
