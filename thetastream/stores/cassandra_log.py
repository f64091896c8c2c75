"""The log of a store in Apache Cassandra: a lightweight transaction writes each version once."""

from collections.abc import Iterator, Mapping
from typing import Any

from thetastream.stores.cassandra_session import CassandraTables
from thetastream.stores.log import Log

LOG_ROWS = 100_000
"""The number of versions in a partition, which then has about 50 MB."""


class CassandraLog(Log):
    """Versions as rows of a table."""

    def __init__(self, tables: CassandraTables, name: str) -> None:
        super().__init__(name)
        self._tables, self._table = tables, tables.quote("commits")

    def make(self) -> None:
        """Make the table unless it is there."""
        self._tables.make("part int, version int, entry text, PRIMARY KEY (part, version)", "commits")

    def find_newest(self) -> int:
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

    def list_texts(self, after: int) -> Iterator[tuple[int, object]]:
        text = f"SELECT version, entry FROM {self._table} WHERE part = ? AND version > ?"
        part = (after + 1) // LOG_ROWS
        while after >= part * LOG_ROWS - 1:
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
