"""A kind of store from outside the package: results in a file of SQLite. One file is enough for it."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from thetastream.results.chunks import Chunk, ChunkStore, ChunkTable, Place
from thetastream.results.description import Description
from thetastream.results.log import Log

NOTE = -1
"""The version of the row with the note of the newest entry."""


@dataclass(frozen=True)
class SqliteStore(ChunkStore):
    """Results in tables of a file of SQLite."""

    path: str
    table: str
    wait_s: int = 30

    kind: ClassVar[str] = "sqlite"

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(Path(self.path).absolute()))

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return f"table {self.table!r} of {self.path}"

    @property
    def log(self) -> "SqliteLog":
        return SqliteLog(self.name, self)

    @property
    def chunks(self) -> "SqliteChunks":
        return SqliteChunks(self)

    def describe(self, description: Description) -> None:
        self.run(f"CREATE TABLE IF NOT EXISTS {self.table}_log (version INTEGER PRIMARY KEY, entry TEXT)")
        super().describe(description)

    def run(self, text: str, values: Sequence[Sequence[Any]] = ((),)) -> list[Any]:
        """Run a statement for each of these values in one transaction, and return the rows of all."""
        with closing(sqlite3.connect(self.path, timeout=self.wait_s)) as connection, connection:
            return [row for one in values for row in connection.execute(text, one)]


NOTE = -1
"""The version of the note of the log."""


class SqliteLog(Log):
    """Versions as rows of a table, of which the primary key allows each once."""

    def __init__(self, name: str, store: SqliteStore) -> None:
        super().__init__(name)
        self._store, self._table = store, f"{store.table}_log"

    def find_last(self) -> int:
        return int(self._store.run(f"SELECT coalesce(max(version), -1) FROM {self._table}")[0][0])

    def find_text(self, version: int) -> object:
        with suppress(sqlite3.OperationalError):  # There is no such table yet.
            for (text,) in self._store.run(f"SELECT entry FROM {self._table} WHERE version={version}"):
                return text
        return None

    def list_texts(self, after: int, noted: int) -> Iterator[tuple[int, object]]:
        yield from self._store.run(f"SELECT * FROM {self._table} WHERE version > {after} ORDER BY version")

    def write(self, version: int, text: str, entry: Mapping[str, Any]) -> bool:
        try:
            self._store.run(f"INSERT INTO {self._table} VALUES (?, ?)", [(version, text)])
        except sqlite3.IntegrityError:
            return False
        return True

    def find_note(self) -> object:
        return self.find_text(NOTE)

    def write_note(self, text: str) -> None:
        self._store.run(f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?)", [(NOTE, text)])


class SqliteChunks(ChunkTable):
    """Chunks as rows of a table, without an index of keys."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._table = store, store.table

    def make(self) -> None:
        columns = "name TEXT, number INTEGER, data BLOB, PRIMARY KEY (name, number)"
        self._store.run(f"CREATE TABLE IF NOT EXISTS {self._table} ({columns})")

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        rows = [(name, one.number, one.data) for one in chunks]
        self._store.run(f"INSERT INTO {self._table} VALUES (?, ?, ?)", rows)

    def read_all(self, names: Sequence[str]) -> Iterator[bytes]:
        text = f"SELECT data FROM {self._table} WHERE name = ? ORDER BY number"
        return (data for (data,) in self._store.run(text, [(name,) for name in names]))

    def read(self, places: Sequence[Place]) -> Iterator[bytes]:
        text = f"SELECT data FROM {self._table} WHERE name = ? AND number = ?"
        return (data for (data,) in self._store.run(text, places))

    def find(self, column: int, low: bytes | None, high: bytes | None, limit: int) -> list[Place] | None:
        return None

    def list_names(self) -> Iterator[str]:
        return (name for (name,) in self._store.run(f"SELECT DISTINCT name FROM {self._table}"))

    def remove(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._store.run(f"DELETE FROM {self._table} WHERE name = ?", [(name,)])
