"""A kind of store from outside the package: results in a file of SQLite. One file is enough for it."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from thetastream.results.backend import NOTE
from thetastream.results.chunks import Chunk, ChunkBackend
from thetastream.results.description import Description
from thetastream.results.store import Store


@dataclass(frozen=True)
class SqliteStore(Store):
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
    def backend(self) -> "SqliteBackend":
        return SqliteBackend(self)


class SqliteBackend(ChunkBackend):
    """Entries of the log, and chunks, as rows of two tables. There is no index of keys."""

    def __init__(self, store: SqliteStore) -> None:
        self._store, self._log, self._chunks = store, f"{store.table}_log", store.table

    def newest(self) -> int:
        return int(self._run(f"SELECT coalesce(max(n), -1) FROM {self._log}")[0][0])

    def read(self, n: int, with_later: bool = False) -> Iterator[tuple[int, object]]:
        text = f"SELECT n, entry FROM {self._log} WHERE n {'>=' if with_later else '='} ? ORDER BY n"
        yield from self._run(text, [(n,)])

    def append(self, n: int, text: str, entry: Mapping[str, Any]) -> bool:
        try:
            self._run(f"INSERT INTO {self._log} VALUES (?, ?)", [(n, text)])
        except sqlite3.IntegrityError:
            return False
        return True

    def mark(self, note: str) -> None:
        self._run(f"INSERT OR REPLACE INTO {self._log} VALUES (?, ?)", [(NOTE, note)])

    def make(self, description: Description) -> None:
        """Do nothing: each connection makes the tables."""

    def names(self) -> Iterator[tuple[str, None]]:
        return ((name, None) for (name,) in self._run(f"SELECT DISTINCT name FROM {self._chunks}"))

    def write(self, name: str, chunks: Sequence[Chunk]) -> None:
        rows = [(name, one.number, one.data) for one in chunks]
        self._run(f"INSERT INTO {self._chunks} VALUES (?, ?, ?)", rows)

    def fetch(self, wanted: Mapping[str, Sequence[int] | None]) -> Iterator[bytes]:
        for name in wanted:
            found = self._run(f"SELECT number, data FROM {self._chunks} WHERE name = ?", [(name,)])
            numbers = wanted[name]
            yield from (data for number, data in found if numbers is None or number in numbers)

    def drop(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._run(f"DELETE FROM {self._chunks} WHERE name = ?", [(name,)])

    def _run(self, text: str, values: Sequence[Sequence[Any]] = ((),)) -> list[Any]:
        """Run a statement for each of these values in one transaction, and return the rows of all."""
        columns = "name TEXT, number INTEGER, data BLOB, PRIMARY KEY (name, number)"
        with closing(sqlite3.connect(self._store.path, timeout=self._store.wait_s)) as connection, connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._log} (n INTEGER PRIMARY KEY, entry TEXT)")
            connection.execute(f"CREATE TABLE IF NOT EXISTS {self._chunks} ({columns})")
            return [row for one in values for row in connection.execute(text, one)]
