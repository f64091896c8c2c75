"""Chunks of rows in Apache Cassandra, and the index of their keys."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from thetastream.stores.cassandra_session import CassandraTables
from thetastream.stores.chunk_table import ChunkTable
from thetastream.stores.chunks import Chunk, Place


class CassandraTable(ChunkTable):
    """The tables of chunks and keys. Cassandra finds single values of a key, and no ranges."""

    def __init__(self, tables: CassandraTables) -> None:
        self._tables = tables
        self._chunks, self._keys = tables.name(), tables.name("keys")

    def make(self) -> None:
        self._tables.make("name text, number int, data blob, PRIMARY KEY (name, number)")
        columns = "column int, value blob, name text, number int"
        self._tables.make(f"{columns}, PRIMARY KEY ((column, value), name, number)", "keys")

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        text = f"INSERT INTO {self._chunks} (name, number, data) VALUES (?, ?, ?)"
        self._write(text, [(name, one.number, one.data) for one in chunks])
        text = f"INSERT INTO {self._keys} (column, value, name, number) VALUES (?, ?, ?, ?)"
        self._write(text, [(*key, name, one.number) for one in chunks for key in one.keys])

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        text = f"SELECT data FROM {self._chunks} WHERE name = ?"
        return self._select(text, [(name,) for name in names])

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        return self._select(f"SELECT data FROM {self._chunks} WHERE name = ? AND number = ?", places)

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        if low is None or low != high:
            return None
        text = f"SELECT name, number FROM {self._keys} WHERE column = ? AND value = ?"
        found = [(name, number) for name, number in islice(self._tables.run(text, (column, low)), limit + 1)]
        return found if len(found) <= limit else None

    def list_names(self) -> Iterator[str]:
        return (name for (name,) in self._tables.run(f"SELECT DISTINCT name FROM {self._chunks}"))

    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        text = f"DELETE FROM {self._keys} WHERE column = ? AND value = ? AND name = ? AND number = ?"
        self._write(text, [(*key, name, one.number) for one in chunks for key in one.keys])
        self._tables.run(f"DELETE FROM {self._chunks} WHERE name = ?", (name,))

    def _select(self, text: str, values: Sequence[Sequence[Any]]) -> Iterator[bytes]:
        return (data for rows in self._tables.run_each(text, values) for (data,) in rows)

    def _write(self, text: str, values: Sequence[Sequence[Any]]) -> None:
        for _ in self._tables.run_each(text, values):
            pass
