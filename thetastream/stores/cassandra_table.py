"""Chunks of rows in Apache Cassandra, and the index of their keys.

    chunks   ((name), number)                          -> the bytes of a chunk
    keys     ((column, bucket), value, name, number)   -> nothing: the chunk has a row with this value

A bucket is a hash of the value, and a partition of the index has all values of one bucket. The entries of one
partition are sent in one batch, which Cassandra applies as one write. One statement for each entry would take
many times as long.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import Any
from zlib import crc32

from thetastream.stores.cassandra_session import CassandraTables
from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import Chunk, Place

BUCKETS = 256
"""The number of partitions of the index for each key column. Existing stores depend on it."""
BATCH_ENTRIES = 500
"""The largest number of entries of the index in one batch."""
Entry = tuple[int, int, bytes, str, int]
"""An entry of the index: column, bucket, value, name and number."""


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
